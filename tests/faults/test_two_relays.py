"""Two relays at the same 2,000 rows."""

from __future__ import annotations

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import two_relays
from outbox_relay.trial.processes import TEST_PROFILE
from tests.faults.judgement import assert_passed


def test_two_relays_claim_each_of_2000_rows_once(open_stage: OpenScenario) -> None:
    assert_passed(two_relays.run(open_stage, 20, 42, TEST_PROFILE), runs=2000, groups=1)
