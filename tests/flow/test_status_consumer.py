"""The example consumer on the real topic: each record takes effect once, whatever is repeated, killed or broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.status_consumer.consumer import apply_batch
from tests.contracts.ledger_lives import Cast, lead_every_life
from tests.flow.resend_account import declare_resend
from tests.flow.status_records import WAIT_S, own_topic, produce, read_all, record, wait_until
from tests.plugins.postgres import PostgresServer, TrialDatabase, drop_database, make_database

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "status_consumer" / "consumer.py"


@dataclass
class Follower:
    """A running consumer."""

    process: subprocess.Popen[bytes]
    output: Path

    def said(self) -> list[dict[str, Any]]:
        """What it printed so far, whole lines only."""
        return [json.loads(line) for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def stop(self) -> int:
        """Ask it to stop, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


@dataclass
class Reader:
    """The consumer's own database, and how to start the consumer on it."""

    database: TrialDatabase
    folder: Path
    bootstrap: str
    started: list[Follower]

    def start(self, topic: str, group: str = "example") -> Follower:
        """Start the script as a person would."""
        output = self.folder / f"{len(self.started)}.jsonl"
        environ = {
            "PATH": os.environ["PATH"],
            "CONSUMER_BOOTSTRAP_SERVERS": self.bootstrap,
            "CONSUMER_TOPIC": topic,
            "CONSUMER_GROUP_ID": f"{group}-{topic}",
            "CONSUMER_DATABASE_URL": self.database.dsn(),
        }
        with output.open("wb") as out:
            process = subprocess.Popen([sys.executable, str(SCRIPT)], env=environ, stdout=out)
        follower = Follower(process, output)
        self.started.append(follower)
        wait_until(lambda: follower.said() or process.poll() is not None, "consumer follows")
        return follower

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Query the consumer's own database."""
        with psycopg.connect(self.database.dsn(), autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def seen(self) -> int:
        """How many records took effect."""
        return int(self.rows("select count(*) from status_reader.seen")[0][0])


@pytest.fixture
def reader(postgres_server: PostgresServer, kafka: Any, tmp_path: Path) -> Iterator[Reader]:
    made = Reader(make_database(postgres_server), tmp_path, kafka.bootstrap, [])
    yield made
    for follower in made.started:
        if follower.process.poll() is None:
            follower.process.kill()
            follower.process.wait(WAIT_S)
    drop_database(made.database)


@pytest.fixture
def topic(kafka: Any) -> str:
    return own_topic(kafka.bootstrap)


def test_consumer_ends_with_the_states_of_the_ledger_and_stops_cleanly(pipeline: Any, reader: Reader) -> None:
    follower = reader.start(pipeline.topic)
    with pipeline.database.connect("owner") as owner:
        declare_resend(owner)
        lead_every_life(owner)
        events = owner.execute("select count(*) from outbox.action_events").fetchone()
        states = owner.execute(
            "select action_id::text, event_sequence, execution_state, delivery_state, receipt_state"
            " from outbox.outbound_actions order by 1"
        ).fetchall()
    wait_until(lambda: (reader.seen(),) == events, "every record took effect")
    known = "select action_id, sequence, execution_state, delivery_state, receipt_state from status_reader.deliveries"
    assert reader.rows(f"{known} order by 1") == states
    assert reader.rows("select sum(changes) from status_reader.deliveries") == [events]
    assert reader.rows("select count(*) from status_reader.poison") == [(0,)]
    assert follower.stop() == 0
    said = follower.said()
    assert said[-1] == {"event": "stopped"}
    assert [line["event"] for line in said].count("changed") == events[0]


def test_a_rewound_topic_changes_nothing(pipeline: Any, reader: Reader) -> None:
    follower = reader.start(pipeline.topic)
    with pipeline.database.connect("owner") as owner:
        declare_resend(owner)
        Cast(owner).sent("once", "accepted")
    wait_until(lambda: reader.seen() == 3, "created, started, confirmed")
    assert follower.stop() == 0
    before = reader.rows("select * from status_reader.deliveries")
    again = reader.start(pipeline.topic, group="rewound")
    wait_until(lambda: sum(line.get("repeated", 0) for line in again.said()) == 3, "all read again")
    assert reader.rows("select * from status_reader.deliveries") == before
    assert again.stop() == 0


def test_consumer_killed_between_its_transaction_and_its_offsets_applies_nothing_twice(
    reader: Reader, topic: str
) -> None:
    produce(reader.bootstrap, topic, [record(1), record(2)])
    assert reader.start(topic, group="makes-tables").stop() == 0
    with psycopg.connect(reader.database.dsn(), autocommit=True) as connection:
        connection.execute("truncate status_reader.seen, status_reader.deliveries")
        # As far as a killed consumer came: committed in its database, not yet in Kafka.
        records = read_all(reader.bootstrap, topic, 2)
        assert len(apply_batch(connection, records).applied) == 2
    follower = reader.start(topic)
    wait_until(lambda: any(line.get("repeated") == 2 for line in follower.said()), "both repeated")
    assert reader.rows("select changes from status_reader.deliveries") == [(2,)]
    assert follower.stop() == 0


def test_poison_is_set_aside_and_what_a_later_release_adds_passes(reader: Reader, topic: str) -> None:
    good, later = record(1), record(3, "type_of_a_later_release", delivery_state="state_of_a_later_release", added=[1])
    headers, value = record(2)
    bad: list[tuple[dict[str, bytes | None], bytes | None]] = [
        (headers, b"{"),
        (headers, None),
        (headers | {"ce_sequence": b"99999999999999999999"}, value),
        (headers, record(2, provider="nul\0")[1]),
        ({name: header for name, header in headers.items() if name != "ce_id"}, value),
        ({"ce_type": b"\xff"}, value),
        ({}, b"plain text"),
    ]
    produce(reader.bootstrap, topic, [good, *bad, later])
    follower = reader.start(topic)
    wait_until(lambda: reader.seen() == 2, "the good records took effect")
    assert reader.rows("select count(*) from status_reader.poison") == [(len(bad),)]
    assert reader.rows("select sequence, delivery_state from status_reader.deliveries") == [
        (3, "state_of_a_later_release")
    ]
    assert follower.stop() == 0


def test_older_news_never_overwrites_newer(reader: Reader, topic: str) -> None:
    newer = record(3, "delivery_confirmed", delivery_state="delivery_confirmed")
    produce(reader.bootstrap, topic, [record(1), newer, record(2)])
    follower = reader.start(topic)
    wait_until(lambda: reader.seen() == 3, "all took effect")
    assert reader.rows("select sequence, delivery_state from status_reader.deliveries") == [(3, "delivery_confirmed")]
    assert follower.stop() == 0


def test_consumer_whose_database_went_away_ends_for_a_restart_and_loses_nothing(reader: Reader, topic: str) -> None:
    follower = reader.start(topic)
    produce(reader.bootstrap, topic, [record(1)])
    wait_until(lambda: reader.seen() == 1, "the first took effect")
    reader.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    produce(reader.bootstrap, topic, [record(2)])
    assert follower.process.wait(WAIT_S) == 75
    assert follower.said()[-1]["event"] == "database_unavailable"
    again = reader.start(topic)
    wait_until(lambda: reader.seen() == 2, "the second took effect")
    assert reader.rows("select changes from status_reader.deliveries") == [(2,)]
    assert again.stop() == 0


def test_two_members_share_the_work_and_one_carries_on_when_the_other_leaves(pipeline: Any, reader: Reader) -> None:
    first, second = reader.start(pipeline.topic), reader.start(pipeline.topic)
    with pipeline.database.connect("owner") as owner:
        declare_resend(owner)
        lead_every_life(owner)
        assert first.stop() == 0
        Cast(owner).sent("after-one-left", "accepted")
        (events,) = owner.execute("select count(*) from outbox.action_events").fetchone() or (0,)
    wait_until(lambda: reader.seen() == events, "every record took effect")
    assert reader.rows("select sum(changes) from status_reader.deliveries") == [(events,)]
    assert second.stop() == 0
    changed = [line for follower in (first, second) for line in follower.said() if line["event"] == "changed"]
    assert len(changed) == events, "printed once each, after it was stored"
