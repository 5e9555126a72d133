"""A real PostgreSQL for the session, and one ledger database per test, cloned from a migrated template.

Tests never share rows: what a test finds in its ledger, it put there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.plugins.places import OWNER, Place, make_place

TEMPLATE = f"ledger_template_{uuid4().hex[:8]}"
"""Of this session: a server may serve several."""
ENVIRONMENT = "test"
ROLES = ("agent", "relay", "reconciler", "operator", "capture")
PLACE = pytest.StashKey[Place]()


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """The server of this session."""

    place: Place

    def dsn(self, database: str = "postgres", role: str = "owner") -> str:
        """A libpq URL; role is owner (superuser) or a part of the product, such as relay."""
        return self.place.dsn(database, role_name(role))

    def execute(self, statement: sql.SQL | sql.Composed, database: str = "postgres") -> None:
        """Run one statement as the owner, outside a transaction."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            connection.execute(statement)


@dataclass(slots=True)
class TrialDatabase:
    """One test's own ledger."""

    server: PostgresServer
    name: str
    _open: ExitStack = field(default_factory=ExitStack, repr=False)

    def dsn(self, role: str = "owner") -> str:
        """A libpq URL for this database; role is owner, agent, relay, reconciler, operator or capture."""
        return self.server.dsn(self.name, role)

    @property
    def capture_url(self) -> str:
        """The URL with which the Connect worker reaches this database."""
        return self.server.place.capture_url(self.name, role_name("capture"))

    def connect(self, role: str = "owner") -> psycopg.Connection:
        """A connection in autocommit, closed when the test ends."""
        connection = psycopg.connect(self.dsn(role), autocommit=True, application_name=f"test {role}")
        return self._open.enter_context(connection)

    def close(self) -> None:
        """Close the connections that were handed out."""
        self._open.close()


def role_name(role: str) -> str:
    """The database role of a part of the product."""
    return OWNER if role == "owner" else f"outbox_{role}" if role in ROLES else role


def make_database(server: PostgresServer, template: str | None = None) -> TrialDatabase:
    """A new, empty or cloned, database."""
    name = f"trial_{uuid4().hex[:12]}"
    statement = sql.SQL("create database {}").format(sql.Identifier(name))
    if template is not None:
        statement += sql.SQL(" template {}").format(sql.Identifier(template))
    server.execute(statement)
    return TrialDatabase(server, name)


def drop_database(database: TrialDatabase) -> None:
    """Drop it, whoever is still connected."""
    database.close()
    database.server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(database.name)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for the server is marked `postgres`."""
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)


def place_of(config: pytest.Config) -> Place:
    """The servers of this session, made on first use."""
    if PLACE not in config.stash:
        config.stash[PLACE] = make_place()
    return config.stash[PLACE]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End every server, however the session ended."""
    if PLACE in config.stash:
        config.stash[PLACE].stop()
        del config.stash[PLACE]


def progress_of(config: pytest.Config) -> Callable[[str], None]:
    """How to tell whoever waits what is being downloaded; also from a worker, whose stdout nobody sees."""
    reporter, capture = (config.pluginmanager.get_plugin(name) for name in ("terminalreporter", "capturemanager"))
    if reporter is not None:
        told: Callable[[str], None] = reporter.write_line
        return told

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(line, file=sys.stderr, flush=True)

    return say


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> PostgresServer:
    """The real PostgreSQL."""
    place = place_of(pytestconfig)
    place.start_postgres()
    return PostgresServer(place)


@pytest.fixture(scope="session")
def ledger_template(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a migrated database in the environment `test`; clone it, never connect to it."""
    from outbox_relay.ledger.migrate import migrate

    postgres_server.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
    migrate(postgres_server.dsn(TEMPLATE), environment=ENVIRONMENT, testing=True)
    yield TEMPLATE
    postgres_server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(TEMPLATE)))


@pytest.fixture
def ledger(postgres_server: PostgresServer, ledger_template: str) -> Iterator[TrialDatabase]:
    """This test's own ledger."""
    database = make_database(postgres_server, ledger_template)
    yield database
    drop_database(database)
