"""The window for a replay is over when somebody looks."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import window_expired
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_held


@pytest.mark.timeout(300)
def test_nothing_is_replayed_after_the_window_less_its_margin(open_stage: OpenScenario) -> None:
    assert_held(window_expired.run(open_stage, 20, 42, HOLDING_PROFILE), runs=20, groups=35)
