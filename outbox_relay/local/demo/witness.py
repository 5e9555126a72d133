"""An independent reader of what happens: the status topic by kafka-python, or without Kafka the agent's own changes.

It shares nothing with the relay: another client library, another group, another connection.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from kafka import KafkaConsumer

from outbox_relay.local.demo.stage import Stage

POLL_S = 0.1


@dataclass
class Witness:
    """What was seen: (event id, value) in the order of arrival."""

    show: Callable[[dict[str, Any]], None]
    records: list[tuple[str, bytes]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def see(self, event_id: str, value: bytes) -> None:
        """Keep one record, and show it the first time."""
        is_new = all(event_id != known for known, _ in self.records)
        self.records.append((event_id, value))
        if is_new:
            self.show(json.loads(value))


@contextmanager
def watching(stage: Stage, show: Callable[[dict[str, Any]], None]) -> Iterator[Witness]:
    """Read in a thread until the end of the block."""
    witness = Witness(show)
    follow = _follow_topic if stage.kafka is not None else _follow_changes
    thread = threading.Thread(target=follow, args=(stage, witness), name="witness", daemon=True)
    thread.start()
    try:
        yield witness
    finally:
        witness.stopping.set()
        thread.join(10)


def _follow_topic(stage: Stage, witness: Witness) -> None:
    if stage.kafka is None:
        return
    consumer = KafkaConsumer(
        f"{stage.kafka.topic_prefix}.delivery-status.v1",
        bootstrap_servers=stage.kafka.bootstrap_servers,
        group_id="demo-witness",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        while not witness.stopping.is_set():
            for records in consumer.poll(timeout_ms=int(POLL_S * 1000)).values():
                for record in records:
                    headers = dict(record.headers)
                    witness.see(headers["ce_id"].decode(), record.value)
    finally:
        consumer.close()


def _follow_changes(stage: Stage, witness: Witness) -> None:
    cursor = ""
    with psycopg.connect(stage.ledger.dsn("agent"), autocommit=True) as connection:
        while not witness.stopping.wait(POLL_S):
            rows = connection.execute(
                "select cursor, action_id, sequence, data::text from outbox.changes(%s, 1000)", [cursor]
            ).fetchall()
            for next_cursor, action_id, sequence, data in rows:
                cursor = next_cursor
                witness.see(f"{action_id}.{sequence}", data.encode())
