"""A database with nothing but the captured table, in the ledger's shape, for tests of the capture alone."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

import kafka as kafka_python
import psycopg

EVENTS_TABLE = """
create schema outbox;
create table outbox.action_events (
  action_id uuid not null, sequence integer not null, event_id text not null, type text not null, source text not null,
  specversion text not null, content_type text not null, time text not null, subject text not null, traceparent text,
  data text not null, created_by text not null, occurred_at timestamptz not null, transaction_id xid8 not null,
  primary key (action_id, sequence));
create publication outbox_events for table outbox.action_events with (publish = 'insert');
do $$ begin
  if not exists (select from pg_roles where rolname = 'outbox_capture') then
    create role outbox_capture login replication;
  end if;
end $$;
grant usage on schema outbox to outbox_capture;
grant select on outbox.action_events to outbox_capture;
"""
INSERT = """
insert into outbox.action_events values (
  %(id)s::uuid, %(sequence)s::int, concat(%(id)s::uuid, '.', %(sequence)s::int), %(type)s, '/outbox-relay/ledger-1',
  '1.0', 'application/json', '2026-11-30T21:00:00.123456Z', %(id)s::uuid::text, %(traceparent)s, %(data)s,
  'agent', clock_timestamp(), pg_current_xact_id())
"""
CREATED = "outbox-relay.delivery-status.action_created.v1"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def write_event(dsn: str, data: str = "{}", *, action: UUID | None = None, sequence: int = 1) -> UUID:
    """Write one event row, committed."""
    action = action or uuid4()
    values = {"id": str(action), "sequence": sequence, "type": CREATED, "data": data, "traceparent": TRACEPARENT}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(INSERT, values)
    return action


def read_records(bootstrap: str, topic: str, count: int, timeout_s: float = 60) -> list:
    """Read the first records of a topic with an independent client."""
    consumer = kafka_python.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None
    )
    found: list = []
    deadline = time.monotonic() + timeout_s
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records within {timeout_s} s"
            for records in consumer.poll(timeout_ms=200).values():
                found += records
    finally:
        consumer.close()
    return found


def keys(records: list) -> list[str]:
    """The action ids of records, in their order."""
    return [record.key.decode() for record in records]
