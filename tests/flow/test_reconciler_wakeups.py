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


def test_the_reconciler_looks_after_the_connector_and_says_when_it_is_gone(
    scenario: SetStage, pipeline: Pipeline
) -> None:
    stage = scenario("resend", kafka=KafkaPlace(pipeline.bootstrap, pipeline.prefix))
    settings = {"OUTBOX_CONNECT_URL": pipeline.connect_url, "OUTBOX_CONNECTOR_NAME": pipeline.connector.name}
    reconciler = stage.start_reconciler(**settings)
    reconciler.wait_for("connector_runs")
    assert reconciler.metrics()["outbox_connector_task_running"] == 1
    pipeline.api.delete(pipeline.connector.name)
    reconciler.wait_for("connector_trouble", timeout_s=60)
    assert reconciler.metrics()["outbox_connector_task_running"] == 0
    status, page = reconciler.get("/readyz")
    assert status == 200, "dispatch and reconciliation go on without it"
    assert "outbox connect status" in page
