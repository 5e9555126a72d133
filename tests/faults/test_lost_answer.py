"""The answer is lost and the worker lives."""

from __future__ import annotations

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import lost_answer
from outbox_relay.trial.processes import TEST_PROFILE
from tests.faults.judgement import assert_passed


def test_accepted_and_dropped_look_the_same_to_the_worker_and_are_told_apart(open_stage: OpenScenario) -> None:
    assert_passed(lost_answer.run(open_stage, 20, 42, TEST_PROFILE), runs=20, groups=8)
