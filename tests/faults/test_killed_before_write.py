"""The worker dies between the acceptance and its write-back."""

from __future__ import annotations

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import killed_before_write
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_passed


def test_an_acceptance_that_died_with_its_worker_is_established_without_a_second_effect(
    open_stage: OpenScenario,
) -> None:
    assert_passed(killed_before_write.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=2)
