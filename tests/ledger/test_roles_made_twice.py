"""Roles belong to the whole server, so the migrations of two ledgers meet there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from outbox_relay.ledger.migrate import migrate
from outbox_relay.ledger.roles import RoleNames
from tests.plugins.postgres import PostgresServer, drop_database, make_database

WAIT_S = 60.0


@pytest.fixture
def names(postgres_server: PostgresServer) -> Iterator[RoleNames]:
    """Roles that no other test has; dropped at the end."""
    prefix = f"twice_{uuid4().hex[:8]}"
    roles = RoleNames(*(f"{prefix}_{part}" for part, _ in RoleNames().items()))
    yield roles
    for name in dict(roles.items()).values():
        postgres_server.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


def test_two_ledgers_of_one_server_may_be_migrated_at_the_same_moment(
    postgres_server: PostgresServer, names: RoleNames
) -> None:
    """Forced, not raced: the role is made by a transaction that is open while the migration makes it, too."""
    database = make_database(postgres_server)
    try:
        with psycopg.connect(postgres_server.dsn()) as other, ThreadPoolExecutor(1) as pool:
            other.execute(sql.SQL("create role {} login").format(sql.Identifier(names.agent)))
            migration = pool.submit(migrate, database.dsn(), environment="test", roles=names)
            waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = %s"
            with psycopg.connect(postgres_server.dsn(), autocommit=True) as looking:
                while looking.execute(waiting, [database.name]).fetchone() == (0,):
                    assert not migration.done(), migration.exception()
            other.commit()
            assert migration.result(WAIT_S)
    finally:
        drop_database(database)
