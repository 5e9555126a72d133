"""What a provider says about a key."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import key_answers
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_held


@pytest.mark.timeout(300)
def test_each_answer_about_a_key_has_its_own_meaning_and_none_a_second_effect(open_stage: OpenScenario) -> None:
    assert_held(key_answers.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=30)
