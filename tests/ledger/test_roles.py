"""Every role x object: what a role was not given, it cannot do, with free SQL and with other names in its way."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.ledger.factories import PAYLOAD, Stage
from tests.plugins.postgres import ROLES

AGENT_COLUMNS = {
    "provider", "operation", "account", "idempotency_key", "recipient", "content_version", "payload", "ordering_key",
    "not_before", "deliver_by", "priority", "tenant", "traceparent", "follows_action_id",
}  # fmt: skip
FUNCTIONS: dict[str, set[str]] = {
    "agent": {"enqueue", "cancel", "changes", "advice", "ledger_identity"},
    "relay": {
        "ledger_identity", "schema_version", "declared_accounts", "probe_write", "sweep_expired_claims",
        "claim_actions", "recall_claims", "record_outcomes", "next_dispatch_in",
    },
    "reconciler": {
        "ledger_identity", "schema_version", "declared_accounts", "probe_write", "sweep_expired_claims",
        "claim_unknowns", "recall_unknowns", "begin_replay", "record_resolutions", "postpone_unknowns", "open_reviews",
        "sweep_deadlines", "next_unknown_in", "roll_up_counters", "action_counters", "backlog", "list_reviews",
        "capture_health", "redact_settled", "delete_history",
    },
    "operator": {
        "ledger_identity", "schema_version", "declared_accounts", "action_counters", "backlog", "list_actions",
        "find_action", "action_history", "action_request", "list_reviews", "decide_review", "capture_health",
        "audit_totals", "audit_keys", "audit_actions",
    },
    "capture": set(),
}  # fmt: skip
PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


def every_table(stage: Stage) -> Iterator[str]:
    """The tables of the ledger."""
    for row in stage.rows("owner", "select tablename from pg_tables where schemaname = 'outbox' order by 1"):
        yield row["tablename"]


@pytest.fixture
def second_agent(stage: Stage) -> Iterator[str]:
    """Another service that writes actions, with a role of its own."""
    name = f"agent_{uuid4().hex[:8]}"
    stage.owner.execute(sql.SQL("create role {} login in role outbox_agent").format(sql.Identifier(name)))
    yield name
    stage.ledger.close()
    stage.ledger.server.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_executes_its_own_functions_and_no_others(stage: Stage, role: str) -> None:
    granted = stage.rows(
        "owner",
        "select distinct proname from pg_proc where pronamespace = 'outbox'::regnamespace"
        " and has_function_privilege(%s, oid, 'EXECUTE')",
        f"outbox_{role}",
    )
    assert {row["proname"] for row in granted} == FUNCTIONS[role]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_touches_no_table_but_where_it_must(stage: Stage, role: str) -> None:
    whole = "select has_table_privilege(%s, %s, %s)"
    name = f"outbox_{role}"
    relations = [*every_table(stage), "action_summary", "action_status"]
    held = {(table, p) for table in relations for p in PRIVILEGES if stage.one(whole, name, f"outbox.{table}", p)}
    assert held == {
        "agent": {("action_status", "SELECT")},
        "capture": {("action_events", "SELECT")},
    }.get(role, set())
    by_column = stage.rows(
        "owner",
        "select c.relname, a.attname, p from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0"
        " cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) p"
        " where c.relnamespace = 'outbox'::regnamespace and c.relkind = 'r' and c.relname <> 'action_events'"
        " and not a.attisdropped and has_column_privilege(%s, c.oid, a.attnum, p)",
        name,
    )
    columns = {(row["relname"], row["p"], row["attname"]) for row in by_column}
    expected = {("outbound_actions", "INSERT", column) for column in AGENT_COLUMNS}
    expected |= {("outbound_actions", "SELECT", column) for column in ("action_id", "idempotency_key")}
    assert columns == (expected if role == "agent" else set())


def test_public_has_nothing(stage: Stage) -> None:
    found = stage.rows(
        "owner",
        "select 'relation' as kind, relname as name from pg_class,"
        "   aclexplode(coalesce(relacl, acldefault('r', relowner))) g"
        "  where relnamespace = 'outbox'::regnamespace and grantee = 0"
        " union all select 'function', proname from pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))"
        "  where pronamespace in (select oid from pg_namespace where nspname like 'outbox%') and grantee = 0"
        " union all select 'schema', nspname from pg_namespace, aclexplode(coalesce(nspacl, acldefault('n', nspowner)))"
        "  where nspname like 'outbox%' and grantee = 0",
    )
    assert found == []


def test_definer_functions_have_a_pinned_path_with_temporary_names_last(stage: Stage) -> None:
    unpinned = stage.rows(
        "owner",
        "select proname from pg_proc where pronamespace in (select oid from pg_namespace where nspname like 'outbox%')"
        " and prosecdef and not coalesce('search_path=pg_catalog, outbox, pg_temp' = any(proconfig), false)",
    )
    assert unpinned == []


def test_temporary_names_do_not_stand_in_for_the_ledgers(stage: Stage) -> None:
    agent = stage.as_("agent")
    for table in ("outbound_actions", "keys", "providers", "work_queue", "action_events", "ledger", "reviews"):
        agent.execute(sql.SQL("create temp table {} (like pg_class)").format(sql.Identifier(table)))
    agent.execute("create function pg_temp.now() returns timestamptz language sql as 'select null::timestamptz'")
    agent.execute("create function pg_temp.sha256(bytea) returns bytea language sql as 'select ''''::bytea'")
    agent.execute("set search_path = pg_temp, outbox, pg_catalog")
    action = stage.insert("k1")
    assert stage.cancel(action) == "cancelled"
    assert stage.one("select count(*) from outbox.changes()", role="agent") is not None
    fingerprint = stage.one("select fingerprint from outbox.keys")
    assert len(fingerprint) == 32, "the ledger's own sha256 was called"


@pytest.mark.parametrize("role", ROLES)
def test_free_sql_of_a_role_changes_and_reads_nothing_of_the_ledger(stage: Stage, role: str) -> None:
    action = stage.attempt("response_lost", evidence={"kind": "no_response", "proves": "nothing", "reason": "timeout"})
    before = stage.everything(action)
    may_read = {"capture": {"action_events"}}.get(role, set())
    for table in every_table(stage):
        second = "select attname from pg_attribute where attrelid = %s::regclass and attnum = 2"
        column = sql.Identifier(stage.one(second, f"outbox.{table}"))
        name = sql.Identifier(table)
        for query in (
            sql.SQL("delete from outbox.{}").format(name),
            sql.SQL("truncate outbox.{}").format(name),
            sql.SQL("update outbox.{} set {} = {}").format(name, column, column),
        ):
            assert stage.refusal(role, query) == "42501", query
        read = sql.SQL("select * from outbox.{}").format(sql.Identifier(table))
        assert stage.refusal(role, read) == (None if table in may_read else "42501"), table
    for attempt in (
        "set session authorization outbox_owner",
        "alter table outbox.outbound_actions disable trigger all",
        "set session_replication_role = replica",
        "create function outbox.evil() returns int language sql as 'select 1'",
        "create or replace function outbox.now() returns timestamptz language sql as 'select null::timestamptz'",
        # Another's rights to oneself: PostgreSQL 14 lets a role lend its own to anybody.
        f"grant {'outbox_agent' if role == 'relay' else 'outbox_relay'} to outbox_{role}",
        "drop publication outbox_events",
    ):
        assert stage.refusal(role, attempt) == "42501", attempt
    assert stage.everything(action) == before


def test_the_agent_sets_the_intent_and_the_labels_and_nothing_else(stage: Stage) -> None:
    columns = stage.rows(
        "owner",
        "select attname from pg_attribute where attrelid = 'outbox.outbound_actions'::regclass and attnum > 0"
        " and not attisdropped",
    )
    forbidden = {row["attname"] for row in columns} - AGENT_COLUMNS
    assert {"execution_state", "provider_id", "created_by", "wire_key", "action_id"} <= forbidden
    for column in forbidden:
        statement = sql.SQL(
            "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload, {})"
            " values ('mail', 'send', 'k', '{{}}', default)"
        ).format(sql.Identifier(column))
        assert stage.refusal("agent", statement) == "42501", column


def test_an_agent_reads_its_own_actions_only(stage: Stage, second_agent: str) -> None:
    action = stage.insert("mine", tenant="t-1")
    for query in ("select * from outbox.action_status", "select * from outbox.changes()"):
        assert len(stage.rows("agent", query)) == 1
        assert stage.rows(second_agent, query) == []
    assert stage.refusal(second_agent, "select * from outbox.cancel('mine')") == "OB009"
    assert stage.state(action).execution == "action_created"


def test_a_key_of_another_agent_is_refused_without_telling_whose(stage: Stage, second_agent: str) -> None:
    stage.insert("shared")
    with pytest.raises(psycopg.Error) as refused:
        stage.insert_as(
            second_agent,
            {"provider": "mail", "operation": "send", "payload": {"to": "b@example.com"}, "idempotency_key": "shared"},
        )
    assert refused.value.sqlstate == "OB001"
    assert refused.value.diag.message_detail is None


def test_what_is_captured_holds_nothing_confidential(stage: Stage) -> None:
    planted = {
        "idempotency_key": "planted-key",
        "recipient": "planted@example.com",
        "tenant": "planted-tenant",
        "payload": PAYLOAD | {"to": "planted@example.com", "secret": "planted-secret"},
        "content_version": "planted-version",
        "ordering_key": "planted-order",
    }
    stage.insert_as("agent", {"provider": "mail", "operation": "send"} | planted)
    captured = stage.rows("capture", "select e::text as line from outbox.action_events e")
    assert captured
    assert not any("planted" in row["line"] for row in captured)
    published = stage.rows(
        "owner", "select schemaname, tablename from pg_publication_tables where pubname = 'outbox_events'"
    )
    assert published == [{"schemaname": "outbox", "tablename": "action_events"}]
    kinds = "select pubinsert, pubupdate, pubdelete, pubtruncate from pg_publication where pubname = 'outbox_events'"
    assert tuple(stage.rows("owner", kinds)[0].values()) == (True, False, False, False)
