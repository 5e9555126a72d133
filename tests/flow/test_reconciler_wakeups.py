"""The reconciler woken by the status topic, with its sweep too far away to help."""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.trial.faults import Fault
from outbox_relay.trial.scenario import KafkaPlace, Scenario
from tests.plugins.kafka import Pipeline

SetStage = Callable[..., Scenario]


def test_an_unknown_on_the_status_topic_wakes_the_reconciler(scenario: SetStage, pipeline: Pipeline) -> None:
    stage = scenario("resend", "github", kafka=KafkaPlace(pipeline.bootstrap, pipeline.prefix))
    reconciler = stage.start_reconciler(OUTBOX_SWEEP_S="600")
    stage.start_relay(OUTBOX_SWEEP_S="600")
    reconciler.wait_for("kafka_ready")
    for provider, place in stage.providers.items():
        place.spoil(Fault.ACCEPT_THEN_DROP, key=f"{provider}/1")
        stage.add(provider, [f"{provider}/1"])
    stage.wait_settled(timeout_s=40)
    assert {each.delivery_state for each in stage.standings()} == {"reconciled_confirmed"}
    assert reconciler.metrics()['outbox_wakeups_total{source="kafka"}'] >= 1
    assert not any(place.book.duplicates() for place in stage.providers.values())
