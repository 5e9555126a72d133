"""Every part of the pipeline is killed once: nothing that was committed is missing on the topic afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outbox_relay.capture.connect_api import ConnectApi
from outbox_relay.capture.connector import Connector, apply
from outbox_relay.capture.topic import ensure_topics
from outbox_relay.local.stack import Stack
from tests.flow.captured_table import EVENTS_TABLE, keys, read_records, write_event

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Servers that this test may kill."""
    with Stack(tmp_path, durable=False, name="killable") as made:
        made.start()
        yield made


def captured(stack: Stack) -> Connector:
    """The captured table, and a running connector."""
    with psycopg.connect(stack.postgres.dsn(), autocommit=True) as connection:
        connection.execute(EVENTS_TABLE)
    url = stack.postgres.dsn(role="outbox_capture")
    connector = Connector("outbox", "outbox", "outbox", url, heartbeat_ms=500)
    ensure_topics(
        connector.topics, bootstrap_servers=stack.broker.bootstrap, partitions=3, replication=1, retention_days=1
    )
    apply(ConnectApi(stack.connect.url), connector)
    return connector


def test_no_event_is_lost_when_each_part_is_killed_in_turn(stack: Stack) -> None:
    connector = captured(stack)
    dsn = stack.postgres.dsn()
    written = [write_event(dsn)]
    stack.postgres.kill()
    stack.start_postgres()
    written.append(write_event(dsn))
    stack.connect.kill()
    written.append(write_event(dsn))
    stack.start_connect()
    written.append(write_event(dsn))
    stack.broker.kill()
    written.append(write_event(dsn))
    stack.start_broker()
    written.append(write_event(dsn))
    wanted = {str(action) for action in written}
    found: set[str] = set()
    count = len(wanted)
    # A part that was killed may send again what it had sent: read on until all are there.
    while not wanted <= found:
        found = set(keys(read_records(stack.broker.bootstrap, connector.topics.status, count, timeout_s=90)))
        count += 1
    assert found == wanted
