"""Follow the delivery-status topic and keep the latest state of every action in this service's own database.

What makes it safe to copy: the effect and the record's id are stored in one transaction, offsets are committed only
after that transaction, and the topic may repeat, rewind or bring types and fields of a later release. It never writes
to the ledger, and it never stops at a record that it cannot use.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

import psycopg
from kafka import KafkaConsumer
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata

POLL_MS = 500
TYPE_PREFIX = "outbox-relay.delivery-status."
TYPE_SUFFIX = ".v1"
RESTART_ME = 75  # EX_TEMPFAIL: the supervisor should start this program again


class KafkaRecord(Protocol):
    """The part of a kafka-python record that is used here."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Change:
    """One record that can be used. Values are text as they came: a later release may bring states unknown here."""

    event_id: str
    kind: str
    action_id: str
    sequence: int
    provider: str
    operation: str
    execution_state: str
    delivery_state: str
    receipt_state: str
    occurred_at: str


class Unusable(Exception):
    """The record is not a delivery-status record of v1; the message says why, without repeating its content."""


class Result(NamedTuple):
    """What a batch led to, known only after it was committed."""

    applied: list[Change]
    repeated: int
    unusable: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to read and where to store."""

    bootstrap_servers: str
    topic: str
    group_id: str
    database_url: str
    kafka_options: Mapping[str, Any]

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read CONSUMER_* variables; a missing one is named."""
        missing = [name for name in ("CONSUMER_BOOTSTRAP_SERVERS", "CONSUMER_DATABASE_URL") if not environ.get(name)]
        if missing:
            raise SystemExit(f"set {' and '.join(missing)}; examples/status_consumer/README.md has an example")
        return cls(
            bootstrap_servers=environ["CONSUMER_BOOTSTRAP_SERVERS"],
            topic=environ.get("CONSUMER_TOPIC", "outbox.delivery-status.v1"),
            group_id=environ.get("CONSUMER_GROUP_ID", "delivery-status-example"),
            database_url=environ["CONSUMER_DATABASE_URL"],
            kafka_options=json.loads(environ.get("CONSUMER_KAFKA_OPTIONS", "{}")),
        )


def say(event: str, **fields: object) -> None:
    """Print one JSON line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def text_headers(record: KafkaRecord) -> dict[str, str]:
    """Give the headers that have a value. An empty traceparent comes as a header without one."""
    try:
        return {name: value.decode() for name, value in record.headers if value is not None}
    except UnicodeDecodeError:
        raise Unusable("a header is not UTF-8") from None


def read(record: KafkaRecord) -> Change:
    """Turn a record into a change. Unknown headers, fields, types and states pass; a missing promise does not."""
    headers = text_headers(record)
    kind = headers.get("ce_type", "")
    if not (kind.startswith(TYPE_PREFIX) and kind.endswith(TYPE_SUFFIX)):
        raise Unusable("ce_type is not a v1 delivery-status type")
    try:
        data = json.loads(record.value or b"")
        return Change(
            event_id=headers["ce_id"],
            kind=kind.removeprefix(TYPE_PREFIX).removesuffix(TYPE_SUFFIX),
            action_id=str(data["action_id"]),
            sequence=int(headers["ce_sequence"]),
            provider=str(data["provider"]),
            operation=str(data["operation"]),
            execution_state=str(data["execution_state"]),
            delivery_state=str(data["delivery_state"]),
            receipt_state=str(data["receipt_state"]),
            occurred_at=str(data["occurred_at"]),
        )
    except KeyError as error:
        raise Unusable(f"{error.args[0]} is missing") from None
    except (TypeError, ValueError, RecursionError):
        raise Unusable("the value is not a JSON object, or ce_sequence is not a number") from None


def apply(connection: psycopg.Connection[Any], change: Change) -> bool:
    """Store the effect of a change, once. False when this record was applied before."""
    inserted = connection.execute(
        "insert into status_reader.seen (event_id) values (%s) on conflict do nothing", (change.event_id,)
    )
    if inserted.rowcount == 0:
        return False
    # Older news changes no state: a record of a rewound topic, or one emitted again after a lost slot, may be late.
    connection.execute(
        """
        insert into status_reader.deliveries as d
          (action_id, sequence, provider, operation, execution_state, delivery_state, receipt_state, occurred_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s)
        on conflict (action_id) do update set
          sequence = excluded.sequence, execution_state = excluded.execution_state,
          delivery_state = excluded.delivery_state, receipt_state = excluded.receipt_state,
          occurred_at = excluded.occurred_at
        where excluded.sequence > d.sequence
        """,
        (
            change.action_id,
            change.sequence,
            change.provider,
            change.operation,
            change.execution_state,
            change.delivery_state,
            change.receipt_state,
            change.occurred_at,
        ),
    )
    # An effect that would be wrong if it happened twice, such as a message to a customer, belongs here.
    connection.execute(
        "update status_reader.deliveries set changes = changes + 1 where action_id = %s", (change.action_id,)
    )
    return True


def set_aside(connection: psycopg.Connection[Any], record: KafkaRecord, reason: str) -> None:
    """Keep a record that cannot be used, and go on."""
    identity = next((value for name, value in record.headers if name == "ce_id" and value is not None), None)
    connection.execute(
        """
        insert into status_reader.poison (topic, partition, position, reason, event_id, value)
        values (%s, %s, %s, %s, %s, %s) on conflict do nothing
        """,
        (
            record.topic,
            record.partition,
            record.offset,
            reason,
            identity.decode(errors="replace").replace("\0", "") if identity else None,
            record.value,
        ),
    )


def apply_batch(connection: psycopg.Connection[Any], records: Iterable[KafkaRecord]) -> Result:
    """Apply records in one transaction. Returns after it was committed."""
    applied: list[Change] = []
    repeated = unusable = 0
    with connection.transaction():
        for record in records:
            try:
                change = read(record)
                with connection.transaction():  # a savepoint: what the database refuses spoils this record only
                    new = apply(connection, change)
            except (Unusable, psycopg.DataError, psycopg.IntegrityError) as error:
                set_aside(connection, record, str(error) if isinstance(error, Unusable) else type(error).__name__)
                unusable += 1
                continue
            if new:
                applied.append(change)
            else:
                repeated += 1
    return Result(applied, repeated, unusable)


def follow(consumer: KafkaConsumer, connection: psycopg.Connection[Any], stopping: list[int]) -> None:
    """Read, store, commit offsets, until told to stop. The batch in hand is always finished."""
    while not stopping:
        batches = consumer.poll(timeout_ms=POLL_MS)
        if not batches:
            continue
        result = apply_batch(connection, [record for records in batches.values() for record in records])
        positions = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1) for partition, records in batches.items()
        }
        try:
            consumer.commit(positions)
        except CommitFailedError:
            say("offsets_not_committed", hint="another member has the partition; it will see these records as repeated")
        for change in result.applied:
            say(
                "changed",
                type=change.kind,
                action_id=change.action_id,
                sequence=change.sequence,
                execution_state=change.execution_state,
                delivery_state=change.delivery_state,
            )
        if result.repeated or result.unusable:
            say("skipped", repeated=result.repeated, unusable=result.unusable)


def make_consumer(settings: Settings) -> KafkaConsumer:
    """Join the group. Offsets are ours to commit, and a new group starts at the oldest record."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "group_id": settings.group_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "max_poll_records": 500,
    }
    consumer = KafkaConsumer(**{**options, **settings.kafka_options})
    consumer.subscribe([settings.topic])
    return consumer


def main() -> int:
    """Run until SIGTERM or SIGINT; exit code 75 when the database went away, for a supervisor to start it again."""
    settings = Settings.from_environment(os.environ)
    stopping: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        with psycopg.connect(settings.database_url, autocommit=True) as connection:
            connection.execute((Path(__file__).parent / "schema.sql").read_bytes())
            consumer = make_consumer(settings)
            say("following", topic=settings.topic, group_id=settings.group_id)
            try:
                follow(consumer, connection, stopping)
            finally:
                consumer.close(autocommit=False)
    except psycopg.OperationalError as error:
        say("database_unavailable", error=type(error).__name__)
        return RESTART_ME
    say("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
