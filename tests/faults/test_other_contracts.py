"""Lost answers at the contracts that `deploy-42-notify` does not visit: each ends as its type says."""

from __future__ import annotations

import pytest

from outbox_relay.trial.drill import Judge
from outbox_relay.trial.faults import Fault
from tests.plugins.processes import SetStage

RUNS = 5
PROVIDERS = ("stripe", "pagerduty", "slack", "standard-webhooks")
REPLAYED = {"stripe", "pagerduty"}
"""Types A and C: the key makes a replay safe, whether the request had arrived or not."""


@pytest.mark.parametrize("fault", [Fault.ACCEPT_THEN_DROP, Fault.DROP_BEFORE_RECEIPT])
def test_a_lost_answer_ends_as_the_contract_type_says(scenario: SetStage, fault: Fault) -> None:
    stage = scenario(*PROVIDERS)
    stage.start_reconciler()
    stage.start_relay()
    for provider, place in stage.providers.items():
        place.spoil(fault, times=None, nth=1)
        stage.add(provider, [f"{provider}:{number}" for number in range(RUNS)])
    stage.wait_settled(timeout_s=60)
    accepted = int(fault is Fault.ACCEPT_THEN_DROP)
    for provider, place in stage.providers.items():
        effects = 1 if provider in REPLAYED else accepted
        # Slack's history is no proof of absence, and a plain webhook has none: the rest is a person's.
        known = provider in REPLAYED or (provider == "slack" and accepted)
        for each in stage.standings(f"{provider}:"):
            assert place.book.effects_per_key().get(each.key, 0) == effects, each
            assert (each.delivery_state == "reconciled_confirmed") == known, each
            assert each.in_review != known, each
            assert each.attempts == (2 if provider in REPLAYED else 1), each
    judge = Judge(stage, seed=1)
    for result in judge.results("lost answers", {f"{provider}:": provider for provider in PROVIDERS}):
        assert not result.broken, result
        assert (result.duplicates, result.undecided_without_owner) == (0, 0)
