"""Cancelled, or past the deadline, while nobody knows whether it happened."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import cancelled_unknown
from outbox_relay.trial.processes import TEST_PROFILE
from tests.faults.judgement import assert_reached


@pytest.mark.timeout(300)
def test_a_withdrawn_unknown_is_only_looked_up_and_ends_as_its_contract_type_allows(open_stage: OpenScenario) -> None:
    results = cancelled_unknown.run(open_stage, 20, 42, TEST_PROFILE)
    assert len(results) == 20
    assert_reached(results)
    for result in results:
        assert result.passed, "\n".join(result.broken[:20])
        assert result.runs == 20
        assert result.effects_per_key == {"1" if result.name.endswith("accepted") else "0": 20}
