"""The provider's record is unreadable, late, long and in no order."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import lookup_trouble
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_held


@pytest.mark.timeout(300)
def test_a_record_in_trouble_is_never_taken_for_absence_and_gets_an_owner(open_stage: OpenScenario) -> None:
    assert_held(lookup_trouble.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=12)
