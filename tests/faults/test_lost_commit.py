"""The acknowledgement of COMMIT is lost on 30 % of claims, and on 30 % of outcomes."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import lost_commit
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_passed


@pytest.mark.timeout(300)
def test_a_claim_whose_commit_answer_was_lost_is_sent_once_and_an_outcome_is_stored_once(
    open_stage: OpenScenario,
) -> None:
    assert_passed(lost_commit.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=12)
