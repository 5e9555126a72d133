"""Where somebody else runs the PostgreSQL: no superuser, roles made by others, other names; on two versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
import yaml
from psycopg import sql

from outbox_relay.errors import LedgerMismatch, LedgerUnavailable, OutboxError, Refused
from outbox_relay.ledger.migrate import _LOCK, SCHEMA_VERSION, migrate
from outbox_relay.ledger.roles import Platform, RoleNames, create_roles_sql
from tests.ledger.factories import ACCOUNT, PAYLOAD, Row, Stage
from tests.plugins.places import ROOT
from tests.plugins.postgres import PostgresServer, TrialDatabase, drop_database, make_database

WAIT_S = 60.0
Make = Callable[[str, str], str]
ROLLED_BACK = "select to_regnamespace('outbox') is null"


@pytest.fixture
def made(any_server: PostgresServer) -> Iterator[Make]:
    """Makes roles of our own; what they own is gone with the database, they are dropped at the end."""
    names: list[str] = []

    def make(name: str, options: str) -> str:
        any_server.execute(sql.SQL(f"create role {{}} {options}").format(sql.Identifier(name)))
        names.append(name)
        return name

    yield make
    for name in names:
        any_server.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def names(any_server: PostgresServer, made: Make) -> Iterator[RoleNames]:
    """Role names of our own, dropped at the end, before whoever made them."""
    del made
    mark = uuid4().hex[:6]
    names = RoleNames(*(f"{part}-of-{mark}" for part, _ in RoleNames().items()))
    yield names
    for name in dict(names.items()).values():
        any_server.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


@pytest.fixture
def empty(any_server: PostgresServer, names: RoleNames) -> Iterator[TrialDatabase]:
    """A database without a ledger; gone before the roles that come to have rights in it are dropped."""
    del names
    database = make_database(any_server)
    yield database
    drop_database(database)


def execute(database: TrialDatabase, statement: str) -> None:
    with psycopg.connect(database.dsn(), autocommit=True) as connection:
        connection.execute(statement.encode())


def owned_by(database: TrialDatabase, owner: str) -> None:
    """As a managed service hands a database over: it belongs to somebody who is no superuser."""
    execute(database, f'alter database "{database.name}" owner to "{owner}"')


def dispatched(stage: Stage, owner: str, names: RoleNames) -> Row:
    """One action from INSERT to acceptance, everybody under the role that was given."""
    stage.rows(owner, "select outbox.apply_accounts(%s)", json.dumps([ACCOUNT]))
    intent = {"provider": "mail", "operation": "send", "idempotency_key": "k", "payload": PAYLOAD}
    action = stage.insert_as(names.agent, intent)[0]["action_id"]
    demand, token = '[{"provider": "mail", "account": "default", "slots": 1}]', uuid4()
    claimed = stage.rows(names.relay, "select * from outbox.claim_actions(%s, %s, 60000, 1000, 'x')", demand, token)
    assert [row["action_id"] for row in claimed] == [action]
    outcome = f'[{{"action_id": "{action}", "claim_token": "{token}", "event": "accepted", "provider_id": "p"}}]'
    stage.rows(names.relay, "select * from outbox.record_outcomes(%s)", outcome)
    assert stage.rows(names.operator, "select * from outbox.audit_totals()") == []
    assert len(stage.rows(names.capture, "select * from outbox.action_events")) == 3
    return stage.rows(names.agent, "select * from outbox.action_status")[0]


def captured(stage: Stage, names: RoleNames) -> int:
    """How many rows the capture role's own slot shows of one more action: it writes five tables, one is published."""
    slot = f"t{uuid4().hex[:10]}"
    stage.rows(names.capture, "select pg_create_logical_replication_slot(%s, 'pgoutput')::text", slot)
    try:
        read = (
            "select count(*) filter (where get_byte(data, 0) = ascii('I')) from pg_logical_slot_peek_binary_changes("
            "%s, null, null, 'proto_version', '1', 'publication_names', 'outbox_events')"
        )
        stage.insert_as(names.agent, {"provider": "mail", "operation": "send", "idempotency_key": "k2", "payload": {}})
        found: int = stage.one(read, slot, role=names.capture)
        return found
    finally:
        stage.rows(names.capture, "select pg_drop_replication_slot(%s)", slot)


def test_an_owner_who_is_no_superuser_installs_and_everybody_works(
    empty: TrialDatabase, names: RoleNames, made: Make
) -> None:
    owner = made(f"owner_{uuid4().hex[:6]}", "login")
    execute(empty, create_roles_sql(names))
    owned_by(empty, owner)
    assert migrate(empty.dsn(owner), environment="test", roles=names, create_roles=False)
    assert migrate(empty.dsn(owner), environment="test", roles=names, create_roles=False) == []
    assert dispatched(Stage(empty), owner, names)["advice"] == "accepted"


def test_on_rds_the_master_user_installs_and_the_capture_role_replicates_by_membership(
    empty: TrialDatabase, names: RoleNames, made: Make, any_server: PostgresServer
) -> None:
    """The master user has the right to grant rds_replication from rds_superuser, and may give nobody REPLICATION."""
    group, superuser = made("rds_replication", "nologin"), made("rds_superuser", "nologin")
    owner = made(f"master_{uuid4().hex[:6]}", "login createrole createdb")
    any_server.execute(sql.SQL("grant {} to {} with admin option").format(*map(sql.Identifier, (group, superuser))))
    any_server.execute(sql.SQL("grant {} to {}").format(*map(sql.Identifier, (superuser, owner))))
    owned_by(empty, owner)
    with pytest.raises(Refused):
        migrate(empty.dsn(owner), environment="test", roles=names)
    passwords = {"capture": "c", "agent": "a"}
    migrate(empty.dsn(owner), environment="test", roles=names, platform=Platform.RDS, passwords=passwords)
    member = (
        "select pg_has_role(%s, 'rds_replication', 'member') and not rolreplication from pg_roles where rolname = %s"
    )
    stage = Stage(empty)
    assert stage.one(member, names.capture, names.capture)
    assert dispatched(stage, owner, names)["advice"] == "accepted"


def test_on_cloud_sql_whoever_may_give_replication_makes_all_roles(
    empty: TrialDatabase, names: RoleNames, made: Make, any_server: PostgresServer
) -> None:
    """A plain server lets a user that is no superuser do that from PostgreSQL 16 on; Cloud SQL's own always."""
    owner = made(f"cloudsql_{uuid4().hex[:6]}", "login createrole createdb replication")
    owned_by(empty, owner)
    with psycopg.connect(any_server.dsn()) as connection:
        may_give = connection.info.server_version >= 160_000
    if may_give:
        migrate(empty.dsn(owner), environment="test", roles=names, platform=Platform.CLOUDSQL)
    else:
        with pytest.raises(Refused) as refused:
            migrate(empty.dsn(owner), environment="test", roles=names, platform=Platform.CLOUDSQL)
        assert "--roles=print" in (refused.value.hint or "")
        execute(empty, create_roles_sql(names, Platform.CLOUDSQL))
        migrate(empty.dsn(owner), environment="test", roles=names, create_roles=False)
    stage = Stage(empty)
    assert dispatched(stage, owner, names)["advice"] == "accepted"
    assert captured(stage, names) == 1


def test_on_cloudnativepg_the_applications_owner_installs_with_the_operators_roles(
    empty: TrialDatabase, names: RoleNames, made: Make
) -> None:
    """Each role as the operator makes it from the printed Cluster resource; the owner has nothing but its database."""
    for role in yaml.safe_load(create_roles_sql(names, Platform.CNPG))["spec"]["managed"]["roles"]:
        options = [option for option in ("login", "replication") if role.get(option)]
        execute(empty, f'create role "{role["name"]}" {" ".join(options)}')
    owner = made(f"app_{uuid4().hex[:6]}", "login")
    owned_by(empty, owner)
    migrate(empty.dsn(owner), environment="test", roles=names, create_roles=False)
    stage = Stage(empty)
    assert dispatched(stage, owner, names)["advice"] == "accepted"
    assert captured(stage, names) == 1


@pytest.mark.parametrize("platform", [Platform.OWN, Platform.RDS, Platform.CLOUDSQL])
def test_the_printed_roles_can_be_made(empty: TrialDatabase, names: RoleNames, made: Make, platform: Platform) -> None:
    made("rds_replication", "nologin")
    execute(empty, create_roles_sql(names, platform))
    migrate(empty.dsn(), environment="test", roles=names, create_roles=False)
    replicates = "select rolreplication from pg_roles where rolname = %s"
    with psycopg.connect(empty.dsn()) as connection:
        found = connection.execute(replicates, [names.capture]).fetchone()
    assert found == (platform is not Platform.RDS,)


def test_for_cloudnativepg_the_roles_are_a_part_of_the_cluster(empty: TrialDatabase) -> None:
    names = RoleNames(agent="payments_agent")
    cluster = yaml.safe_load(create_roles_sql(names, Platform.CNPG))
    roles = {role["name"]: role for role in cluster["spec"]["managed"]["roles"]}
    assert set(roles) == set(dict(names.items()).values())
    assert [name for name, role in roles.items() if role.get("replication")] == ["outbox_capture"]
    assert roles["payments_agent"]["passwordSecret"] == {"name": "payments-agent"}
    with pytest.raises(Refused) as refused:
        migrate(empty.dsn(), environment="test", platform=Platform.CNPG)
    assert "--roles=existing" in (refused.value.hint or "")
    assert empty.connect().execute(ROLLED_BACK).fetchone() == (True,)


def test_a_ledger_with_actions_goes_from_version_1_on_and_nothing_of_it_changes(empty: TrialDatabase) -> None:
    migrate(empty.dsn(), environment="test", testing=True)
    stage = Stage(empty)
    stage.declare()
    settled, unknown = stage.attempt("accepted", provider_id="p"), stage.attempt("response_lost")
    stage.rows("owner", "alter table outbox.outbound_actions drop column history_deleted_at cascade")
    stage.rows("owner", "drop index outbox.outbound_actions_unredacted")
    stage.rows("owner", "delete from outbox.schema_migrations where version >= 2")
    before = stage.everything(settled), stage.everything(unknown)
    applied = migrate(empty.dsn(), environment="test", testing=True)
    assert applied == ["migrations/0002_retention.sql", "migrations/0003_hot_updates.sql", "roles.sql"]
    for was, action in zip(before, (settled, unknown), strict=True):
        now = stage.everything(action)
        assert now["outbound_actions"][0]["row"].pop("history_deleted_at") is None
        assert now == was
    assert stage.resolve(unknown, "found", provider_id="q") == "applied"


# -- Waiting ----------------------------------------------------------------------------------------------------------


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_racing_migrator_waits_as_long_as_the_other_one_takes(empty: TrialDatabase, names: RoleNames) -> None:
    """Neither its own patience for locks nor the timeouts of its role or database cut that wait."""
    execute(empty, f"alter database \"{empty.name}\" set statement_timeout = '300ms'")
    execute(empty, f"alter database \"{empty.name}\" set lock_timeout = '200ms'")
    holder = psycopg.connect(empty.dsn(), autocommit=True)
    holder.execute("select pg_advisory_lock(%s)", [_LOCK])
    heard: list[str] = []
    results: list[object] = []

    def work() -> None:
        try:
            results.append(migrate(empty.dsn(), environment="test", roles=names, patience_s=0.3, progress=heard.append))
        except OutboxError as error:
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    waited = (
        "select exists (select from pg_stat_activity a join pg_locks l using (pid) where l.locktype = 'advisory'"
        " and not l.granted and a.datname = current_database()"
        " and clock_timestamp() - a.query_start > interval '1 second')"
    )
    until(lambda: bool(results) or holder.execute(waited.encode()).fetchone() == (True,))
    assert results == []
    holder.close()
    thread.join(WAIT_S)
    assert heard[0] == "waiting for another migration to end"
    assert isinstance(results[0], list), results
    assert results[0][0].startswith("migrations/0001")


def test_a_migration_never_makes_agents_queue_behind_a_long_transaction(empty: TrialDatabase) -> None:
    migrate(empty.dsn(), environment="test")
    stage = Stage(empty)
    stage.declare()
    stage.rows("owner", "update outbox.schema_files set checksum = 'old' where name = 'triggers.sql'")
    with stage.as_("agent").transaction():
        stage.insert("long")
        with pytest.raises(LedgerUnavailable, match="long transaction") as refused:
            migrate(empty.dsn(), environment="test", patience_s=0.2)
        assert refused.value.hint
        assert str(Stage(empty).insert("other")), "agents go on"
    assert migrate(empty.dsn(), environment="test") == ["triggers.sql", "roles.sql"]


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99])
def test_a_newer_ledger_is_refused_to_the_migrator(empty: TrialDatabase, version: int) -> None:
    migrate(empty.dsn(), environment="test")
    execute(empty, f"insert into outbox.schema_migrations values ({version}, 'later', 'x')")
    with pytest.raises(LedgerMismatch, match=f"version {version}") as refused:
        migrate(empty.dsn(), environment="test")
    assert "upgrade the program" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("platform", "says"),
    [
        ("rds", ["rds.logical_replication", "grant rds_replication to"]),
        ("cloudsql", ["cloudsql.logical_decoding", "login replication;"]),
        ("cnpg", ["replication: true", "managed:"]),
        ("own", ["wal_level = 'logical'", "login replication;"]),
    ],
)
def test_the_command_prints_what_a_platform_needs_and_connects_to_nothing(platform: str, says: list[str]) -> None:
    command = [sys.executable, "-m", "outbox_relay.cli", "migrate", "--roles", "print", "--platform", platform]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(part in done.stdout for part in says), done.stdout
