"""Writes and reads records of a topic that is the test's own: nothing but Connect ever writes to a status topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.contracts.topic_schemas import schemas

WAIT_S = 60.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition with a deadline."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S:.0f} s: {what}"
        time.sleep(0.05)


def own_topic(bootstrap: str) -> str:
    """Create a topic with one partition and a name that nobody else has."""
    name = f"own{uuid4().hex[:10]}.delivery-status.v1"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, 1, 1)])
    admin.close()
    return name


def produce(bootstrap: str, topic: str, records: list[tuple[dict[str, bytes | None], bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})  # kafka-python cannot write a header without a value
    for headers, value in records:
        producer.produce(topic, value=value, headers=list(headers.items()))
    assert producer.flush(WAIT_S) == 0


def read_all(bootstrap: str, topic: str, wanted: int) -> list[Any]:
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    found: list[Any] = []

    def enough() -> bool:
        for records in consumer.poll(timeout_ms=500).values():
            found.extend(records)
        return len(found) >= wanted

    wait_until(enough, f"{wanted} records read")
    consumer.close()
    return found


def record(number: int, kind: str = "dispatch_started", **changed: object) -> tuple[dict[str, bytes | None], bytes]:
    data = {**schemas()["dispatch_started"]["examples"][0], **changed}
    headers = {
        "ce_id": f"{data['action_id']}.{number}".encode(),
        "ce_type": f"outbox-relay.delivery-status.{kind}.v1".encode(),
        "ce_sequence": str(number).encode(),
        "traceparent": None,
    }
    return headers, json.dumps(data).encode()
