"""The main job through every real part: row, Debezium, Kafka, relay, provider, acceptance, status topic.

Sweeps are an hour apart and the relay's own polling is off, so only Kafka can wake anything in time.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_relay.trial.processes import Profile
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import KafkaPlace, Scenario
from tests.contracts.test_topics_stream import read_topic
from tests.contracts.topic_schemas import record_complaints
from tests.plugins.kafka import Pipeline
from tests.plugins.processes import SetStage

ROOT = Path(__file__).resolve().parents[2]
NO_SWEEP = Profile("no-sweep", deadline_s=5, lease_s=10, sweep_s=3600, shortens_contracts=True)
ROLLED_BACK = 200
COMMITTED = 800
PER_TRANSACTION = 20


def kafka_stage(scenario: SetStage, pipeline: Pipeline, *providers: str) -> Scenario:
    place = KafkaPlace(pipeline.bootstrap, pipeline.prefix)
    return scenario(*providers, profile=NO_SWEEP, kafka=place)


def headers_of(record: Any) -> dict[str, str | None]:
    return {name: None if value is None else value.decode() for name, value in record.headers}


@pytest.mark.timeout(240)
def test_of_1000_actions_with_200_rolled_back_the_provider_has_800_keys_once_each(
    scenario: SetStage, pipeline: Pipeline
) -> None:
    stage = kafka_stage(scenario, pipeline, "resend")
    relay = stage.start_relay()
    relay.wait_for("kafka_ready")
    committed: list[str] = []
    undone: list[str] = []
    for batch in range((COMMITTED + ROLLED_BACK) // PER_TRANSACTION):
        roll_back = batch % 5 == 4
        keys = [f"deploy:{batch:03}:{number:02}" for number in range(PER_TRANSACTION)]
        stage.add("resend", keys, roll_back=roll_back)
        (undone if roll_back else committed).extend(keys)
    assert (len(committed), len(undone)) == (COMMITTED, ROLLED_BACK)
    stage.wait_for_count(
        COMMITTED, "delivery_state = 'delivery_confirmed'", timeout_s=120, what="all 800 to be confirmed"
    )

    book = stage.providers["resend"].book
    assert Counter(line.ref for line in book.requests()) == Counter(committed), "one request with the stored key each"
    assert Counter(line.wire_key for line in book.requests()) == Counter(committed)
    assert book.effects_per_key() == dict.fromkeys(committed, 1)
    ids = {effect.ref: effect.provider_id for effect in book.effects()}
    assert {each.key: each.provider_id for each in stage.standings()} == ids, "confirmed with the provider's own id"

    metrics = relay.metrics()
    wakeups = {
        match[1]: value
        for name, value in metrics.items()
        if (match := re.match(r'outbox_wakeups_total.*"(\w+)"', name))
    }
    assert wakeups["kafka"] > 0
    assert wakeups.get("sweep", 0) <= 1, "the sweep of the start, and no other"
    assert wakeups.get("poll", 0) == 0

    with psycopg.connect(stage.ledger.dsn("owner")) as owner:
        rows: dict[str, str] = dict(owner.execute("select event_id, data from outbox.action_events").fetchall())
    records = read_topic(pipeline.bootstrap, pipeline.topic, len(rows))
    assert {str(headers_of(record)["ce_id"]): record.value.decode() for record in records} == rows, (
        "the topic holds what the ledger's history holds, and nothing that anybody else produced"
    )
    lives: dict[str, list[str]] = {}
    for record in records:
        assert record_complaints(headers_of(record), json.loads(record.value)) == []
        lives.setdefault(record.key.decode(), []).append(str(headers_of(record)["ce_type"]).split(".")[2])
    assert Counter(map(tuple, lives.values())) == {
        ("action_created", "dispatch_started", "delivery_confirmed"): COMMITTED
    }


def test_integers_beyond_2_53_and_unicode_arrive_byte_for_byte(scenario: SetStage, pipeline: Pipeline) -> None:
    stage = kafka_stage(scenario, pipeline, "resend", "github")
    stage.start_relay()
    exact = '{"n": 9007199254740993, "big": 123456789012345678901234567890, "money": 2.50, "text": "é ✓ 💌 \\u001f"}'
    payloads = {
        "resend": sample_of("resend").payload | {"subject": "é ✓ 💌", "tags": [{"name": "n", "value": exact}]},
        "github": sample_of("github").payload | {"body": "é ✓ 💌 9007199254740993"},
    }
    with psycopg.connect(stage.ledger.dsn("agent")) as agent:
        for provider, payload in payloads.items():
            text = json.dumps(payload, ensure_ascii=False)
            if provider == "resend":
                text = text[:-1] + f', "headers": {exact}' + "}"
            agent.execute(
                "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
                " values (%s, %s, %s, %s)",
                [provider, sample_of(provider).operation, f"exact:{provider}", text],
            )
    stage.wait_for_count(2, "delivery_state = 'delivery_confirmed'", timeout_s=60, what="both to be confirmed")
    with psycopg.connect(stage.ledger.dsn("owner")) as owner:
        (stored,) = owner.execute(
            "select payload::text from outbox.outbound_actions where provider = 'resend'"
        ).fetchone() or ("",)
    assert "9007199254740993" in stored
    assert "123456789012345678901234567890" in stored
    assert "2.50" in stored
    (email,) = stage.providers["resend"].book.requests()
    assert email.body_sha256 == hashlib.sha256(stored.encode()).hexdigest(), "the body is the payload's stored text"
    (comment,) = stage.providers["github"].book.effects()
    assert comment.ref == "exact:github", "the marker names the action"


def test_only_connect_produces_to_the_status_topic() -> None:
    """No program of the product has a producer; what is on the topic came through the captured table."""
    producers = [
        path.relative_to(ROOT)
        for folder in ("outbox_relay", "reconciler")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\b(AIO)?(Kafka)?Producer\b|SerializingProducer", path.read_text())
    ]
    assert producers == []
