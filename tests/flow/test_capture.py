"""What Debezium makes of rows in the events table: binary CloudEvents, byte for byte, in order per action."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event
from cloudevents.core.formats.json import JSONFormat

from outbox_relay.capture.connector import apply, await_task, recover
from outbox_relay.capture.watch import ConnectorWatch
from outbox_relay.errors import ConditionNotMet
from tests.flow.captured_table import (
    CREATED,
    EVENTS_TABLE,
    INSERT,
    TRACEPARENT,
    keys,
    read_records,
    write_event,
)
from tests.plugins.kafka import (
    ConnectServer,
    KafkaServer,
    Pipeline,
    drop_slot,
    make_pipeline,
    remove_pipeline,
    slot_exists,
)
from tests.plugins.postgres import PostgresServer, TrialDatabase, drop_database, make_database


@pytest.fixture
def events(postgres_server: PostgresServer) -> Iterator[TrialDatabase]:
    """A database with nothing but the captured table."""
    database = make_database(postgres_server)
    database.connect().execute(EVENTS_TABLE)
    yield database
    drop_database(database)


@pytest.fixture
def captured(events: TrialDatabase, kafka: KafkaServer, connect: ConnectServer) -> Iterator[Pipeline]:
    """The table, captured."""
    made = make_pipeline(events, kafka, connect)
    yield made
    remove_pipeline(made)


def write(database: TrialDatabase, data: str = "{}", *, action: UUID | None = None, sequence: int = 1) -> UUID:
    """One event row, committed."""
    return write_event(database.dsn(), data, action=action, sequence=sequence)


def read(pipeline: Pipeline, count: int, *, topic: str | None = None) -> list:
    """The first records of this test's topic."""
    return read_records(pipeline.bootstrap, topic or pipeline.topic, count)


def test_an_event_row_arrives_as_a_binary_cloudevent(captured: Pipeline) -> None:
    data = '{"b": 1.50, "a": 9007199254740993123456, "none": null, "empty": [], "text": "Zoë 🧾"}'
    action = write(captured.database, data)
    (record,) = read(captured, 1)
    assert record.value == data.encode()
    assert record.key == str(action).encode()
    assert dict(record.headers) == {
        "ce_id": f"{action}.1".encode(),
        "ce_type": CREATED.encode(),
        "ce_source": b"/outbox-relay/ledger-1",
        "ce_specversion": b"1.0",
        "ce_time": b"2026-11-30T21:00:00.123456Z",
        "ce_subject": str(action).encode(),
        "ce_sequence": b"1",
        "content-type": b"application/json",
        "traceparent": TRACEPARENT.encode(),
    }
    assert len(record.headers) == 9


def test_the_cloudevents_sdk_reads_the_record(captured: Pipeline) -> None:
    action = write(captured.database, '{"attempt": 1}')
    (record,) = read(captured, 1)
    event = from_binary_event(KafkaMessage(dict(record.headers), record.key, record.value), JSONFormat())
    assert event.get_id() == f"{action}.1"
    assert event.get_type() == CREATED
    assert event.get_data() == {"attempt": 1}
    assert event.get_extension("sequence") == "1"


def test_events_of_one_action_stay_in_order(captured: Pipeline) -> None:
    action = uuid4()
    for sequence in range(1, 21):
        write(captured.database, action=action, sequence=sequence)
        write(captured.database)
    records = [record for record in read(captured, 40) if record.key == str(action).encode()]
    assert [dict(record.headers)["ce_sequence"] for record in records] == [str(n).encode() for n in range(1, 21)]
    assert len({record.partition for record in records}) == 1


def test_events_from_before_the_connector_arrive_too(
    events: TrialDatabase, kafka: KafkaServer, connect: ConnectServer
) -> None:
    early = write(events, '{"n": 1}')
    pipeline = make_pipeline(events, kafka, connect)
    try:
        late = write(events, '{"n": 2}')
        assert {record.key.decode() for record in read(pipeline, 2)} == {str(early), str(late)}
    finally:
        remove_pipeline(pipeline)


def test_a_rolled_back_event_never_arrives(captured: Pipeline) -> None:
    with captured.database.connect() as connection, connection.transaction(force_rollback=True):
        values = {"id": str(uuid4()), "sequence": 1, "type": CREATED, "data": "{}", "traceparent": None}
        connection.execute(INSERT, values)
    marker = write(captured.database)
    assert [record.key.decode() for record in read(captured, 1)] == [str(marker)]


def test_heartbeats_do_not_break_the_transform(captured: Pipeline) -> None:
    assert len(read(captured, 3, topic=captured.topics.heartbeat)) >= 3
    action = write(captured.database)
    assert [record.key.decode() for record in read(captured, 1)] == [str(action)]
    status = captured.api.status(captured.connector.name)
    assert status is not None
    assert status.runs


def test_heartbeats_let_the_slot_move_on_while_no_action_is_written(captured: Pipeline) -> None:
    """An idle ledger in a busy server must not keep the WAL of everybody else."""
    query = "select confirmed_flush_lsn from pg_replication_slots where slot_name = %s"
    with captured.database.connect() as connection:
        before = connection.execute(query, [captured.connector.slot_name]).fetchone()
        deadline = time.monotonic() + 30
        while connection.execute(query, [captured.connector.slot_name]).fetchone() == before:
            assert time.monotonic() < deadline, "the slot stands still"
            time.sleep(0.1)


def test_a_standby_may_be_promoted_without_losing_the_slot(captured: Pipeline) -> None:
    """From PostgreSQL 17 on the slot is one that standbys may copy; before, there is no such thing."""
    with captured.database.connect() as connection:
        slot = "select to_jsonb(s) -> 'failover' from pg_replication_slots s where slot_name = %s"
        found = connection.execute(slot, [captured.connector.slot_name]).fetchone()
        assert found == (True if connection.info.server_version >= 170_000 else None,)


def test_applying_the_connector_again_changes_nothing(captured: Pipeline) -> None:
    again = apply(captured.api, captured.connector)
    assert not again.created
    assert again.changed == ()
    assert again.status.runs


def test_a_missing_publication_is_named(
    postgres_server: PostgresServer, events: TrialDatabase, kafka: KafkaServer, connect: ConnectServer
) -> None:
    events.connect().execute("drop publication outbox_events")
    with pytest.raises(ConditionNotMet, match=r"(?i)publication") as raised:
        make_pipeline(events, kafka, connect)
    assert "outbox migrate" in (raised.value.hint or "")
    assert postgres_server.dsn() not in str(raised.value)


def test_a_lost_slot_is_recovered_without_losing_an_event(captured: Pipeline) -> None:
    server, connector = captured.database.server, captured.connector
    before = write(captured.database)
    read(captured, 1)
    captured.api.stop(connector.name)
    drop_slot(server, connector.slot_name)
    during = write(captured.database)
    captured.api.resume(connector.name)
    with pytest.raises(ConditionNotMet, match="failed") as raised:
        await_task(captured.api, connector, timeout_s=30)
    assert "Lost slot" in (raised.value.hint or "")
    recover(captured.api, connector, slot_exists=lambda: slot_exists(server, connector.slot_name))
    after = write(captured.database)
    found = [record.key.decode() for record in read(captured, 4)]
    assert sorted(found) == sorted([str(before), str(before), str(during), str(after)])


async def test_a_failed_task_is_restarted_once_its_cause_is_gone(captured: Pipeline) -> None:
    """Connect leaves a failed task failed: without the watch the topic would stay silent."""
    owner = captured.database.connect()
    captured.api.stop(captured.connector.name)
    owner.execute("drop publication outbox_events")
    captured.api.resume(captured.connector.name)
    seen: list[str | None] = []
    watch = ConnectorWatch(
        captured.api, captured.connector.name, every_s=0.2, on_status=lambda _, trouble: seen.append(trouble)
    )
    stopping = asyncio.Event()
    task = asyncio.create_task(watch.run(stopping))
    async with asyncio.timeout(60):
        while watch.restarts == 0:
            await asyncio.sleep(0.05)
        owner.execute("create publication outbox_events for table outbox.action_events with (publish = 'insert')")
        while seen[-1] is not None:
            await asyncio.sleep(0.05)
    stopping.set()
    await task
    assert any(trouble is not None and "failed" in trouble for trouble in seen)
    action = write(captured.database)
    assert keys(await asyncio.to_thread(read, captured, 1)) == [str(action)]


def test_removing_a_pipeline_leaves_no_slot(events: TrialDatabase, kafka: KafkaServer, connect: ConnectServer) -> None:
    pipeline = make_pipeline(events, kafka, connect)
    remove_pipeline(pipeline)
    assert not slot_exists(events.server, pipeline.connector.slot_name)
