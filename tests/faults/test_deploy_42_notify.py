"""The drill `deploy-42-notify`, 20 of each half at a keyed provider and at one with a lookup only."""

from __future__ import annotations

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import deploy_42_notify
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_passed


def test_a_killed_worker_leaves_one_action_one_effect_and_one_confirmed_delivery(open_stage: OpenScenario) -> None:
    results = deploy_42_notify.run(open_stage, 20, 42, HOLDING_PROFILE)
    assert_passed(results, runs=20, groups=4)
