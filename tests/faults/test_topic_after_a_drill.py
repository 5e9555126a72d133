"""I8: after a drill the status topic, deduplicated by event id, is the ledger's history, in order per action.

A zombie, kills and lost answers with programs that are woken by Kafka: records that come twice, late or not at all must
cost neither a second effect nor a line of the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from outbox_relay.trial.drills import zombie
from outbox_relay.trial.invariants import Findings, read_findings, topic_equals_history
from outbox_relay.trial.processes import HOLDING_PROFILE, Profile, wait_until
from outbox_relay.trial.scenario import KafkaPlace, Scenario, open_scenario
from tests.faults.judgement import assert_passed
from tests.plugins.kafka import Pipeline


@pytest.mark.timeout(300)
def test_the_topic_is_the_history_after_a_zombie_came_back(pipeline: Pipeline, tmp_path: Path) -> None:
    place = KafkaPlace(pipeline.bootstrap, pipeline.prefix)

    @contextmanager
    def opened(providers: Sequence[str], profile: Profile, url: str | None = None) -> Iterator[Scenario]:
        assert url is None
        with open_scenario(pipeline.database, tmp_path, providers=providers, profile=profile, kafka=place) as scenario:
            yield scenario

    assert_passed(zombie.run(opened, 10, 42, HOLDING_PROFILE), runs=10, groups=4)
    found = read_findings(pipeline.database.dsn("owner"), {}, {})
    records = read_topic(pipeline, found)
    assert topic_equals_history(found, records) == []


def read_topic(pipeline: Pipeline, found: Findings) -> list[tuple[str, bytes]]:
    """Event id and value of every record, once there are as many different ones as the history has lines."""
    lines = sum(len(events) for events in found.events.values())
    consumer = KafkaConsumer(
        pipeline.topic, bootstrap_servers=pipeline.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    records: list[tuple[str, bytes]] = []

    def complete() -> bool:
        for batch in consumer.poll(timeout_ms=500).values():
            records.extend((dict(record.headers)["ce_id"].decode(), record.value) for record in batch)
        return len({event_id for event_id, _ in records}) >= lines

    wait_until(complete, timeout_s=60, what=f"{lines} events on the topic")
    consumer.close()
    return records
