"""Reconcilers die or freeze in mid-replay, and an operator decides meanwhile."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import mid_replay
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_passed


@pytest.mark.timeout(300)
def test_a_decision_fences_the_reconciler_and_what_it_learned_is_kept(open_stage: OpenScenario) -> None:
    assert_passed(mid_replay.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=4)
