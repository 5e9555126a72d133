"""A DBA can install and upgrade the ledger: again, at the same time, under other names, without being superuser."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from outbox_relay.errors import LedgerMismatch, OutboxError
from outbox_relay.ledger.migrate import migrate, printed
from outbox_relay.ledger.pool import open_ledger
from outbox_relay.ledger.roles import RoleNames, create_roles_sql
from tests.ledger.factories import Row, Stage
from tests.plugins.postgres import PostgresServer, TrialDatabase, drop_database, make_database

OBJECTS = """
select 'table ' || c.relname || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attnotnull as line
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
 where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'v')
union all select 'storage ' || relname || reloptions::text from pg_class
           where relnamespace = 'outbox'::regnamespace and reloptions is not null
union all select 'index ' || indexdef from pg_indexes where schemaname = 'outbox'
union all select 'function ' || p.oid::regprocedure || md5(p.prosrc) || coalesce(p.proconfig::text, '') || p.prosecdef
          || coalesce(p.proacl::text, '') from pg_proc p where p.pronamespace = 'outbox'::regnamespace
union all select 'constraint ' || conname || pg_get_constraintdef(oid) from pg_constraint
           where connamespace = 'outbox'::regnamespace
union all select 'trigger ' || pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
union all select 'grant ' || c.relname || coalesce(c.relacl::text, '') from pg_class c
           where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'v')
union all select 'column ' || c.relname || a.attname || a.attacl::text from pg_class c
            join pg_attribute a on a.attrelid = c.oid and a.attacl is not null
           where c.relnamespace = 'outbox'::regnamespace
union all select 'step ' || t::text from outbox.transitions t
union all select 'file ' || name || checksum from outbox.schema_files
union all select 'migration ' || name || checksum from outbox.schema_migrations
order by 1
"""


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[TrialDatabase]:
    """A database without a ledger."""
    database = make_database(postgres_server)
    yield database
    drop_database(database)


def objects(database: TrialDatabase) -> list[str]:
    return [row[0] for row in database.connect().execute(OBJECTS.encode()).fetchall()]


def execute(database: TrialDatabase, statement: str) -> None:
    database.connect().execute(statement.encode())


def test_a_second_migration_does_nothing(empty: TrialDatabase) -> None:
    applied = migrate(empty.dsn(), environment="test", testing=True)
    assert applied[0].startswith("migrations/0001")
    before = objects(empty)
    assert migrate(empty.dsn(), environment="test", testing=True) == []
    assert objects(empty) == before


AS_OF_VERSION_2 = """
create function outbox.number_change() returns trigger language plpgsql as $$ begin return new; end $$;
create trigger number_change before update on outbox.outbound_actions
  for each row execute function outbox.number_change();
drop function outbox.check_payload(jsonb, text, integer), outbox.check_labels(outbox.outbound_actions);
create function outbox.check_payload(jsonb, text, integer) returns void language sql as '';
create function outbox.check_labels(outbox.outbound_actions) returns void language sql as '';
alter table outbox.outbound_actions set (fillfactor = 80);
delete from outbox.schema_files;
delete from outbox.schema_migrations where version = 3"""


def test_a_ledger_of_version_2_becomes_the_same_as_a_new_one(empty: TrialDatabase) -> None:
    migrate(empty.dsn(), environment="test")
    fresh = objects(empty)
    execute(empty, AS_OF_VERSION_2)
    assert objects(empty) != fresh
    assert migrate(empty.dsn(), environment="test")[0] == "migrations/0003_hot_updates.sql"
    assert objects(empty) == fresh


def test_two_migrators_at_the_same_time_install_once(empty: TrialDatabase) -> None:
    results: list[list[str]] = []
    start = threading.Barrier(2)

    def work() -> None:
        start.wait()
        results.append(migrate(empty.dsn(), environment="test"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(bool, results)) == [False, True]


def test_a_changed_function_is_applied_again_with_its_grants(empty: TrialDatabase) -> None:
    migrate(empty.dsn(), environment="test")
    before = objects(empty)
    broken = "create or replace function outbox.now() returns timestamptz language sql volatile as 'select null::date'"
    execute(empty, broken)
    execute(empty, "update outbox.schema_files set checksum = 'old' where name = 'functions/now.sql'")
    assert migrate(empty.dsn(), environment="test") == ["functions/now.sql", "roles.sql"]
    assert objects(empty) == before


@pytest.mark.parametrize(
    "statement",
    ["create table outbox.theirs ()", "create function outbox.theirs() returns int language sql as 'select 1'"],
)
def test_a_foreign_schema_of_the_same_name_is_refused_and_left_alone(empty: TrialDatabase, statement: str) -> None:
    execute(empty, "create schema outbox")
    execute(empty, statement)
    with pytest.raises(LedgerMismatch) as refused:
        migrate(empty.dsn(), environment="test")
    assert refused.value.hint
    assert empty.connect().execute("select to_regclass('outbox.schema_migrations')").fetchone() == (None,)


def test_an_empty_schema_that_a_dba_made_is_used(empty: TrialDatabase) -> None:
    execute(empty, "create schema outbox")
    assert migrate(empty.dsn(), environment="test")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("update outbox.schema_migrations set checksum = 'other'", "another content"),
        ("insert into outbox.schema_migrations values (99, 'later', 'x')", "version 99"),
        ("update outbox.ledger set environment = 'production'", "production"),
    ],
)
def test_another_history_is_refused_and_nothing_changes(empty: TrialDatabase, change: str, says: str) -> None:
    migrate(empty.dsn(), environment="test")
    execute(empty, change)
    execute(empty, "update outbox.schema_files set checksum = 'old' where name = 'functions/now.sql'")
    before = objects(empty)
    with pytest.raises(LedgerMismatch, match=says) as refused:
        migrate(empty.dsn(), environment="test")
    assert refused.value.hint
    assert objects(empty) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("insert into outbox.schema_migrations values (99, 'later', 'x')", "version 99"),
        ("update outbox.ledger set environment = 'production'", "production"),
    ],
)
async def test_a_program_refuses_a_ledger_that_does_not_fit(empty: TrialDatabase, change: str, says: str) -> None:
    migrate(empty.dsn(), environment="test")
    execute(empty, change)
    with pytest.raises(LedgerMismatch, match=says):
        async with open_ledger(empty.dsn("relay"), environment="test", application="test"):
            pass


def test_the_printed_script_makes_the_same_objects(empty: TrialDatabase, postgres_server: PostgresServer) -> None:
    """Applied by psql, as a DBA would, on a database where the roles exist."""
    other = make_database(postgres_server)
    try:
        migrate(other.dsn(), environment="test", testing=True)
        script = printed(environment="test", testing=True)
        if psql := shutil.which("psql"):
            command = [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", empty.dsn()]
            done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        else:
            execute(empty, script)
        assert objects(empty) == objects(other)
        assert migrate(empty.dsn(), environment="test", testing=True) == []
    finally:
        drop_database(other)


# -- Roles ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def names(postgres_server: PostgresServer) -> Iterator[RoleNames]:
    """Role names of our own, dropped at the end."""
    mark = uuid4().hex[:6]
    names = RoleNames(*(f"{part}-of-{mark}" for part, _ in RoleNames().items()))
    yield names
    for name in dict(names.items()).values():
        postgres_server.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def owner(postgres_server: PostgresServer) -> Iterator[str]:
    """An owner that is no superuser, as on a managed PostgreSQL."""
    name = f"owner_{uuid4().hex[:6]}"
    postgres_server.execute(sql.SQL("create role {} login createrole").format(sql.Identifier(name)))
    yield name
    postgres_server.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_two_ledgers_in_one_cluster_do_not_meet(empty: TrialDatabase, names: RoleNames, stage: Stage) -> None:
    migrate(empty.dsn(), environment="test", roles=names)
    theirs = Stage(empty)
    theirs.declare()
    intent: Row = {"provider": "mail", "operation": "send", "payload": {}, "idempotency_key": "k"}
    assert theirs.insert_as(names.agent, intent)
    foreign = stage.refusal(names.agent, "insert into outbox.outbound_actions (idempotency_key) values ('k')")
    assert foreign == "42501"
    assert theirs.refusal("agent", "select * from outbox.action_status") == "42501"
    assert theirs.rows(names.relay, "select * from outbox.ledger_identity()")
    empty.close()
    execute(empty, "drop schema outbox cascade")


def test_a_password_is_given_and_never_shown(empty: TrialDatabase, names: RoleNames) -> None:
    said: list[str] = []
    migrate(empty.dsn(), environment="test", roles=names, passwords={"agent": "s3cret'"}, progress=said.append)
    stored = empty.connect().execute("select rolpassword is not null from pg_authid where rolname = %s", [names.agent])
    assert stored.fetchone() == (True,)
    assert "s3cret" not in "".join(said)
    execute(empty, "drop schema outbox cascade")


def test_an_owner_who_is_no_superuser_installs_with_roles_that_exist(
    empty: TrialDatabase, names: RoleNames, owner: str
) -> None:
    execute(empty, create_roles_sql(names))
    execute(empty, f'grant create on database "{empty.name}" to {owner}')
    assert migrate(empty.dsn(owner), environment="test", roles=names, create_roles=False)
    stage = Stage(empty)
    assert stage.one("select count(*) from outbox.ledger", role=owner) == 1
    stage.rows(owner, "select outbox.apply_accounts('[]')")
    assert stage.refusal(names.agent, "insert into outbox.outbound_actions (idempotency_key) values ('k')") == "OB003"
    events = "select tableowner from pg_tables where schemaname = 'outbox' and tablename = 'action_events'"
    assert stage.one(events) == owner
    empty.close()
    execute(empty, f"drop owned by {owner} cascade")


def test_roles_that_cannot_be_made_are_explained(empty: TrialDatabase, names: RoleNames, owner: str) -> None:
    """Many managed databases refuse to make a replication role."""
    execute(empty, f'grant create on database "{empty.name}" to {owner}')
    with pytest.raises(OutboxError) as refused:
        migrate(empty.dsn(owner), environment="test", roles=names)
    assert "--roles" in (refused.value.hint or "")
    execute(empty, f"drop owned by {owner} cascade")


def test_roles_that_are_missing_are_explained(empty: TrialDatabase, names: RoleNames) -> None:
    with pytest.raises(OutboxError) as refused:
        migrate(empty.dsn(), environment="test", roles=names, create_roles=False)
    assert names.agent in str(refused.value)
    assert "--roles" in (refused.value.hint or "")


def test_an_owner_without_rights_is_told_which(empty: TrialDatabase, names: RoleNames, owner: str) -> None:
    with pytest.raises(OutboxError) as refused:
        migrate(empty.dsn(owner), environment="test", roles=names, create_roles=False)
    assert isinstance(refused.value.__cause__, psycopg.Error)
    assert refused.value.hint
