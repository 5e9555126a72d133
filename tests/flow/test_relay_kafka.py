"""The relay woken by Kafka alone: PostgreSQL, Debezium, Kafka, relay, provider. No sweep helps."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from outbox_relay.trial.processes import HttpProgram, Profile, wait_until
from outbox_relay.trial.scenario import KafkaPlace, Scenario
from tests.plugins.kafka import Pipeline

SetStage = Callable[..., Scenario]
NO_SWEEP = Profile("no-sweep", deadline_s=5, lease_s=10, sweep_s=600, shortens_contracts=True)


def keys(count: int, name: str = "deploy") -> list[str]:
    return [f"{name}:{number:04}" for number in range(count)]


@pytest.fixture
def stage(scenario: SetStage, pipeline: Pipeline) -> Scenario:
    """A stage whose relays are woken by this test's own topic."""
    return scenario("resend", profile=NO_SWEEP, kafka=KafkaPlace(pipeline.bootstrap, pipeline.prefix))


def start_listening(stage: Scenario, name: str = "relay", **environ: str) -> HttpProgram:
    """A relay that has swept for the first and last time, and has joined its group."""
    relay = stage.start_relay(name, **environ)
    relay.wait_for("kafka_ready", timeout_s=60)
    return relay


def series(relay: HttpProgram, name: str, labels: str = "") -> float:
    """The sum of a metric over the labels that are not named."""
    return sum(value for sample, value in relay.metrics().items() if sample.startswith(name) and labels in sample)


def wait_confirmed(stage: Scenario, count: int) -> None:
    """Wait for acceptances in the ledger."""
    what = f"{count} acceptances"
    stage.wait_for_count(count, "delivery_state = 'delivery_confirmed'", timeout_s=60, what=what)


def test_kafka_wakes_the_relay_and_nothing_else_has_to(stage: Scenario) -> None:
    relay = start_listening(stage)
    stage.add("resend", keys(20), roll_back=True)
    stage.add("resend", keys(100, "real"))
    wait_confirmed(stage, 100)
    assert set(stage.providers["resend"].book.effects_per_key()) == set(keys(100, "real"))
    assert len(stage.providers["resend"].book.requests()) == 100
    assert series(relay, "outbox_wakeups_total", 'source="kafka"') > 0
    assert series(relay, "outbox_wakeups_total", 'source="sweep"') == 1, "the one at the start"
    assert relay.terminate() == 0


def test_records_read_again_cost_no_request(stage: Scenario) -> None:
    """A new consumer group reads the topic from its beginning."""
    first = start_listening(stage)
    stage.add("resend", keys(30))
    wait_confirmed(stage, 30)
    assert first.terminate() == 0
    second = start_listening(stage, "again", OUTBOX_KAFKA_GROUP_ID="another-group")
    wait_until(
        lambda: series(second, "outbox_kafka_records_total", 'use="wakeup"') >= 30,
        timeout_s=30,
        what="the records to be read again",
    )
    stage.add("resend", ["after"])
    wait_confirmed(stage, 31)
    assert len(stage.providers["resend"].book.requests()) == 31
    assert series(second, "outbox_refused_claims_total") >= 1


def test_an_action_for_later_is_announced_early_and_sent_in_time(stage: Scenario) -> None:
    start_listening(stage)
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        (moment,) = connection.execute("select clock_timestamp() + interval '3 seconds'").fetchone() or (None,)
    stage.add("resend", ["now:1"])
    with psycopg.connect(stage.ledger.dsn("agent")) as connection:
        connection.execute(
            "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload, not_before)"
            " values ('resend', 'emails.send', 'later:1',"
            """ '{"from": "a@example.com", "to": ["b@example.com"], "subject": "-", "text": "-"}', %s)""",
            [moment],
        )
    wait_confirmed(stage, 2)
    condition = (
        "idempotency_key = 'later:1' and first_attempt_at between %s and %s::timestamptz + interval '10 seconds'"
    )
    assert stage.count(condition, moment, moment) == 1
