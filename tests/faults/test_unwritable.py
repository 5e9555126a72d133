"""Outcomes cannot be stored for longer than a replay would be safe."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import unwritable
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_passed


@pytest.mark.timeout(300)
def test_nothing_is_sent_while_outcomes_cannot_be_stored_and_everything_known_is_stored_afterwards(
    open_stage: OpenScenario,
) -> None:
    # 20 that are accepted when the ledger breaks, and 20 that are inserted while it is broken.
    *relays, resend, pagerduty = unwritable.run(open_stage, 20, 42, HOLDING_PROFILE)
    assert_passed(relays, runs=40, groups=12)
    assert_passed([resend, pagerduty], runs=20, groups=2)
