"""The real broker and Connect for the session, and one connector with its own topic and slot per test.

They start in the background while the first tests run, and only when a selected test needs them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import pytest

from outbox_relay.capture.connect_api import ConnectApi
from outbox_relay.capture.connector import Connector, apply
from outbox_relay.capture.topic import Topics, ensure_topics
from tests.plugins.postgres import PostgresServer, TrialDatabase, place_of, progress_of

PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class KafkaServer:
    """The broker of this session."""

    bootstrap: str


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """The Connect worker of this session."""

    url: str

    @property
    def api(self) -> ConnectApi:
        """A client for it."""
        return ConnectApi(self.url)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One ledger's way into Kafka: everything that OUTBOX_ settings need."""

    database: TrialDatabase
    connector: Connector
    bootstrap: str
    connect_url: str

    @property
    def prefix(self) -> str:
        """The topic prefix, unique to the test."""
        return self.connector.topic_prefix

    @property
    def topic(self) -> str:
        """The status topic."""
        return self.topics.status

    @property
    def topics(self) -> Topics:
        """Both topics."""
        return self.connector.topics

    @property
    def api(self) -> ConnectApi:
        """Connect's REST interface."""
        return ConnectApi(self.connect_url)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the broker or Connect is marked `kafka`."""
    for item in items:
        if {"kafka", "connect"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download and start before any test's time runs, when a selected test needs it."""
    names = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.option.collectonly or not {"postgres_server", "kafka", "connect"} & names:
        return
    place_of(session.config).prepare(progress_of(session.config), kafka=bool({"kafka", "connect"} & names))


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> KafkaServer:
    """The real broker."""
    place = place_of(pytestconfig)
    place.start_connect()
    return KafkaServer(place.bootstrap())


@pytest.fixture(scope="session")
def connect(pytestconfig: pytest.Config, kafka: KafkaServer) -> ConnectServer:
    """The real Connect worker."""
    assert kafka.bootstrap
    return ConnectServer(place_of(pytestconfig).connect_url())


def make_pipeline(database: TrialDatabase, kafka: KafkaServer, connect: ConnectServer) -> Pipeline:
    """Topics and a running connector for this database, all with names of their own."""
    name = f"t{uuid4().hex[:10]}"
    connector = Connector(
        name=name, slot_name=name, topic_prefix=name, database_url=database.capture_url, heartbeat_ms=500
    )
    ensure_topics(
        connector.topics, bootstrap_servers=kafka.bootstrap, partitions=PARTITIONS, replication=1, retention_days=1
    )
    made = Pipeline(database, connector, kafka.bootstrap, connect.url)
    try:
        apply(connect.api, connector, timeout_s=60, slot_exists=lambda: slot_exists(database.server, name))
    except BaseException:
        remove_pipeline(made)
        raise
    return made


def remove_pipeline(pipeline: Pipeline) -> None:
    """Remove the connector and its slot, which would keep WAL for ever."""
    pipeline.api.delete(pipeline.connector.name)
    drop_slot(pipeline.database.server, pipeline.connector.slot_name)


def slot_exists(server: PostgresServer, name: str) -> bool:
    """True when the replication slot is there."""
    with psycopg.connect(server.dsn()) as connection:
        row = connection.execute("select from pg_replication_slots where slot_name = %s", [name]).fetchone()
        return row is not None


def drop_slot(server: PostgresServer, name: str, timeout_s: float = 20) -> None:
    """Drop the slot as soon as nobody reads from it."""
    deadline = time.monotonic() + timeout_s
    statement = (
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and not active"
    )
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        while connection.execute(statement, [name]).fetchone() is None and slot_exists(server, name):
            assert time.monotonic() < deadline, f"slot {name} stays in use"
            time.sleep(0.05)


@pytest.fixture
def pipeline(ledger: TrialDatabase, kafka: KafkaServer, connect: ConnectServer) -> Iterator[Pipeline]:
    """This test's ledger, captured into a topic of its own."""
    made = make_pipeline(ledger, kafka, connect)
    yield made
    remove_pipeline(made)
