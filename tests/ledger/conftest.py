"""The ledger's tests run on the session's PostgreSQL, the core of them on older ones too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from psycopg import sql

from outbox_relay.ledger.migrate import migrate
from outbox_relay.local.servers import BINDIR_VARIABLE, MAJOR_VARIABLE, can_run, chosen_major, server_bindir
from outbox_relay.local.stack import Stack
from tests.ledger.factories import Stage
from tests.plugins.places import ROOT, LocalPlace
from tests.plugins.postgres import (
    ENVIRONMENT,
    TEMPLATE,
    PostgresServer,
    TrialDatabase,
    drop_database,
    make_database,
    progress_of,
)

CORE = frozenset({"test_transitions", "test_insert", "test_claims", "test_fencing", "test_roles", "test_reading"})
"""The files that run on every server of this run."""
LONG = frozenset({"test_a_hundred_thousand_rows_in_one_statement_stay_linear"})
"""Of those files, what takes too long to repeat."""
OLDER = (14, 15)
"""Run beside the newest; `make test POSTGRES=16 ARGS=tests/ledger` runs everything on that one instead."""


def servers_of_run() -> list[str]:
    """The newest and the older ones, or the one that was asked for."""
    if os.environ.get(BINDIR_VARIABLE) or chosen_major():
        return ["newest"]
    return ["newest", *(f"postgresql-{major}" for major in OLDER)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The core on every server of this run."""
    core = metafunc.module.__name__.split(".")[-1] in CORE and metafunc.function.__name__ not in LONG
    for fixture in ("ledger", "any_server"):
        if fixture in metafunc.fixturenames and (core or fixture == "any_server"):
            metafunc.parametrize(fixture, servers_of_run(), indirect=True, scope="function")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the older servers before any test's time runs."""
    parametrized = [item.callspec for item in session.items if hasattr(item, "callspec")]
    asked = {str(param) for callspec in parametrized for param in callspec.params.values()}
    if can_run() and not session.config.option.collectonly:
        for major in OLDER:
            if f"postgresql-{major}" in asked:
                server_bindir(major, progress_of(session.config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless `-m` asks for it."""
    if "exhaustive" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session")
def older_servers() -> Iterator[Callable[[str], PostgresServer]]:
    """Starts a server by the name of its parameter, migrated once."""
    servers: dict[str, PostgresServer] = {}

    def start(name: str) -> PostgresServer:
        if name not in servers:
            servers[name] = older_server(name.removeprefix("postgresql-"))
        return servers[name]

    yield start
    for server in servers.values():
        server.place.stop()


def older_server(major: str) -> PostgresServer:
    """One of the pinned servers, with a migrated template."""
    if not can_run():
        pytest.skip("the pinned servers are for Linux on x86-64")
    place = LocalPlace()
    place.stack = Stack(ROOT / "build", durable=False, name=f"tests-{major}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MAJOR_VARIABLE, major)
        place.start_postgres()
    server = PostgresServer(place)
    try:
        server.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
        migrate(server.dsn(TEMPLATE), environment=ENVIRONMENT, testing=True)
    except BaseException:
        place.stop()
        raise
    return server


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
        server, template = request.getfixturevalue("older_servers")(request.param), TEMPLATE
    with cloned(server, template) as database:
        yield database


@pytest.fixture
def any_server(request: pytest.FixtureRequest) -> PostgresServer:
    """The newest server, and then the older ones."""
    if request.param == "newest":
        newest: PostgresServer = request.getfixturevalue("postgres_server")
        return newest
    start: Callable[[str], PostgresServer] = request.getfixturevalue("older_servers")
    return start(request.param)


@pytest.fixture
def stage(ledger: TrialDatabase) -> Stage:
    """The cast, with the usual account declared."""
    stage = Stage(ledger)
    stage.declare()
    return stage
