"""A provider that is down under steady load, and comes back."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import outage
from outbox_relay.trial.processes import TEST_PROFILE


@pytest.mark.timeout(300)
def test_unknowns_do_not_grow_with_an_outage_and_windows_are_spent_shortest_first(open_stage: OpenScenario) -> None:
    results = outage.run(open_stage, 40, 42, TEST_PROFILE)
    assert len(results) == 8
    for result in results:
        assert result.passed, "\n".join(result.broken[:20])
        assert result.runs == 40
        if result.contract_type != "E":
            assert result.effects_per_key == {"1": 40}
