"""The confluent-kafka variant in docs/status-topic.md is run as it stands on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer

from tests.flow.status_records import own_topic, produce, record
from tests.plugins.postgres import TrialDatabase

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TURNS = 120


class Stopping:
    """Falsy until enough took effect, or the loop has turned often enough."""

    def __init__(self, effects: list[Any], wanted: int) -> None:
        self.effects = effects
        self.wanted = wanted
        self.turns = 0

    def __bool__(self) -> bool:
        self.turns += 1
        return len(self.effects) >= self.wanted or self.turns > TURNS


def test_the_variant_on_the_page_applies_each_record_once(kafka: Any, ledger: TrialDatabase) -> None:
    topic = own_topic(kafka.bootstrap)
    produce(kafka.bootstrap, topic, [record(1), record(1), record(2)])
    (source,) = BLOCK.findall((ROOT / "docs" / "status-topic.md").read_text())
    assert len(source.splitlines()) <= 20, "short enough to be read"
    source = source.replace("localhost:9092", kafka.bootstrap).replace("outbox.delivery-status.v1", topic)
    effects: list[tuple[str, int]] = []
    with psycopg.connect(ledger.dsn(), autocommit=True) as database:
        database.execute("create table seen (event_id text primary key)")
        scope = {
            "Consumer": Consumer,
            "json": json,
            "database": database,
            "stopping": Stopping(effects, 2),
            "take_effect": lambda _kind, sequence, data: effects.append((data["event"], sequence)),
        }
        exec(compile(source, "docs/status-topic.md", "exec"), scope)  # noqa: S102
    assert effects == [("claimed", 1), ("claimed", 2)]
