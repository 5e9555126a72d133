"""The account is another one when the replay comes."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import changed_place
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_held


@pytest.mark.timeout(300)
def test_nothing_is_replayed_to_another_account_address_or_mode(open_stage: OpenScenario) -> None:
    assert_held(changed_place.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=26)
