"""A relay stopped past its lease and resumed."""

from __future__ import annotations

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import zombie
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_passed


def test_a_zombie_cannot_change_state_and_its_late_acceptance_is_kept_and_used(open_stage: OpenScenario) -> None:
    assert_passed(zombie.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=4)
