"""Every shipped contract against a provider whose answers are worded after its documentation."""

from __future__ import annotations

from outbox_relay.trial.drill import Judge
from outbox_relay.trial.samples import SAMPLES
from tests.plugins.processes import SetStage


def test_every_contract_reads_the_acceptance_of_its_provider(scenario: SetStage) -> None:
    stage = scenario(*SAMPLES)
    stage.start_relay()
    for provider in SAMPLES:
        stage.add(provider, [f"deploy-42:{provider}:{number}" for number in range(3)])
        stage.add(provider, [f"never:{provider}"], roll_back=True)
    stage.wait_settled(timeout_s=30)
    for each in stage.standings():
        provider = each.key.split(":")[1]
        (effect,) = stage.providers[provider].book.effects(each.key)
        assert each.delivery_state == "delivery_confirmed", each
        assert each.provider_id == (None if provider == "standard-webhooks" else effect.provider_id)
    judge = Judge(stage, seed=1)
    for result in judge.results("every contract", {f"deploy-42:{provider}:": provider for provider in SAMPLES}):
        assert result.passed, result
