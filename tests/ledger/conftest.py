"""The ledger's tests run on the session's PostgreSQL; the core of them on an older one too, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg import sql

from outbox_relay.ledger.migrate import migrate
from outbox_relay.local.postgres import BINDIR_VARIABLE
from outbox_relay.local.stack import Stack
from tests.ledger.factories import Stage
from tests.plugins.places import ROOT, LocalPlace
from tests.plugins.postgres import ENVIRONMENT, TEMPLATE, PostgresServer, TrialDatabase, drop_database, make_database

CORE = frozenset({"test_transitions", "test_insert", "test_claims", "test_fencing", "test_roles"})
"""The files that run on the older server too."""


def older_bindir() -> Path | None:
    """The programs of an installed PostgreSQL that is older than the wheel's."""
    found = sorted(Path("/usr/lib/postgresql").glob("1[4-7]/bin/postgres"))
    return found[0].parent if found else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The core on every server there is."""
    bindir = older_bindir()
    module = metafunc.module.__name__.split(".")[-1]
    older = f"postgresql-{bindir.parent.name if bindir else 'older'}"
    for fixture in ("ledger", "any_server"):
        if fixture in metafunc.fixturenames and (module in CORE or fixture == "any_server"):
            metafunc.parametrize(fixture, ["newest", older], indirect=True, scope="function")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless `-m` asks for it."""
    if "exhaustive" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session")
def older_server() -> Iterator[PostgresServer]:
    """The older server, migrated once."""
    if older_bindir() is None:
        pytest.skip("no PostgreSQL 14 to 17 is installed below /usr/lib/postgresql")
    place = LocalPlace()
    place.stack = Stack(ROOT / "build", durable=False, name="tests-older")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BINDIR_VARIABLE, str(older_bindir()))
        place.start_postgres()
    server = PostgresServer(place)
    try:
        server.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
        migrate(server.dsn(TEMPLATE), environment=ENVIRONMENT, testing=True)
        yield server
    finally:
        place.stop()


@contextmanager
def cloned(server: PostgresServer, template: str) -> Iterator[TrialDatabase]:
    """A ledger of one's own, dropped at the end."""
    database = make_database(server, template)
    try:
        yield database
    finally:
        drop_database(database)


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> Iterator[TrialDatabase]:
    """This test's own ledger, on the server that its parameter names."""
    if getattr(request, "param", "newest") == "newest":
        server, template = request.getfixturevalue("postgres_server"), request.getfixturevalue("ledger_template")
    else:
        server, template = request.getfixturevalue("older_server"), TEMPLATE
    with cloned(server, template) as database:
        yield database


@pytest.fixture
def any_server(request: pytest.FixtureRequest) -> PostgresServer:
    """The newest server, and then the older one."""
    chosen: PostgresServer = request.getfixturevalue("postgres_server" if request.param == "newest" else "older_server")
    return chosen


@pytest.fixture
def stage(ledger: TrialDatabase) -> Stage:
    """The cast, with the usual account declared."""
    stage = Stage(ledger)
    stage.declare()
    return stage
