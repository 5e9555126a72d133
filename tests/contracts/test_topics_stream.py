"""What Debezium makes of the event table is what the contract of the topic says, byte for byte."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event
from kafka import KafkaConsumer

from outbox_relay.states import RecordType
from tests.contracts.ledger_lives import lead_every_life
from tests.contracts.topic_schemas import record_complaints, record_type
from tests.flow.resend_account import declare_resend

READ_TIMEOUT_S = 60


def read_topic(bootstrap: str, topic: str, wanted: int) -> list[Any]:
    """Read a topic from its start until it gave `wanted` records, with a client that is not the product's."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while len(found) < wanted:
            assert time.monotonic() < deadline, f"{len(found)} of {wanted} records after {READ_TIMEOUT_S} s"
            for records in consumer.poll(timeout_ms=500).values():
                found.extend(records)
    finally:
        consumer.close()
    return found


def rows_of(owner: psycopg.Connection[Any]) -> dict[str, tuple[str, str]]:
    query = "select event_id, action_id::text, data from outbox.action_events"
    return {event_id: (action_id, data) for event_id, action_id, data in owner.execute(query)}


def test_debezium_emits_every_row_once_valid_and_in_order_per_action(pipeline: Any) -> None:
    """One test, because a connector of its own takes seconds: each assertion is a promise of docs/status-topic.md."""
    with pipeline.database.connect("owner") as owner:
        declare_resend(owner, receipts_expected=True)
        lead_every_life(owner)
        rows = rows_of(owner)
    records = read_topic(pipeline.bootstrap, pipeline.topic, len(rows))
    assert len(records) == len(rows)
    last: dict[str, int] = {}
    kinds = set()
    for record in records:
        raw = dict(record.headers)
        headers = {name: None if value is None else value.decode() for name, value in raw.items()}
        action_id, data = rows[str(headers["ce_id"])]
        assert record.key.decode() == action_id
        assert record.value.decode() == data, "the value must arrive as the database holds it"
        assert record_complaints(headers, json.loads(record.value)) == []
        assert int(str(headers["ce_sequence"])) == last.get(action_id, 0) + 1, "records of one action must be in order"
        last[action_id] = int(str(headers["ce_sequence"]))
        kinds.add(record_type(str(headers["ce_type"])))
        event = from_binary_event(
            KafkaMessage({n: v for n, v in raw.items() if v is not None}, record.key, record.value)
        )
        assert (event.get_id(), event.get_type()) == (headers["ce_id"], headers["ce_type"])
    assert kinds == set(RecordType)
    assert {dict(record.headers)["traceparent"] is None for record in records} == {True, False}
