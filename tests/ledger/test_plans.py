"""The hot functions read by index only, on a ledger of a hundred thousand actions with fresh statistics.

With `-m exhaustive` also on one of a million. The plans are those of the statements inside the functions, as
auto_explain reports them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.ledger.conftest import cloned
from tests.ledger.factories import Stage

GROWING = frozenset({"outbound_actions", "work_queue", "action_events", "evidence", "reviews", "incidents", "keys"})
"""Tables that no hot function may read whole. counter_deltas is rolled up; the others are small."""

LOAD = """
alter table outbox.outbound_actions disable trigger user;
insert into outbox.outbound_actions (provider, operation, idempotency_key, payload, execution_state, delivery_state)
  select 'mail', 'send', 's' || n, '{{"to": "a@example.com"}}', 'dispatch_finished', 'delivery_confirmed'
    from generate_series(1, {settled}) n;
alter table outbox.outbound_actions enable trigger user;
insert into outbox.keys select idempotency_key, sha256(''), action_id from outbox.outbound_actions;
insert into outbox.action_events (action_id, sequence, event_id, type, source, time, subject, data, created_by,
                                  occurred_at)
  select action_id, 1, action_id::text, 't', 's', 't', 's', '{{}}', 'outbox_agent', now() from outbox.outbound_actions;
insert into outbox.evidence (action_id, kind, proves, reason)
  select action_id, 'response', 'nothing', 'test' from outbox.outbound_actions limit 9000;
insert into outbox.incidents (provider, account, operation, reason, owner)
  select 'mail', 'default', 'send', 'r' || n, 'o' from generate_series(1, 9000) n;
insert into outbox.reviews (incident_id, action_id, reason, owner, missing, next_step, due_at)
  select n, gen_random_uuid(), 'r', 'o', 'm', 's', now() from generate_series(1, 9000) n;
insert into outbox.outbound_actions (provider, operation, idempotency_key, payload, ordering_key)
  select 'mail', 'send', 'k' || n, '{{"to": "a@example.com"}}', case when n % 10 = 0 then 'o' || n % 500 end
    from generate_series(1, 12000) n;
alter table outbox.outbound_actions disable trigger user;
update outbox.outbound_actions set execution_state = 'dispatch_finished', delivery_state = 'delivery_unknown'
 where idempotency_key ~ '^k1?[0-9]{{0,3}}$';
alter table outbox.outbound_actions enable trigger user;
update outbox.work_queue q set kind = 'unknown' from outbox.outbound_actions a
 where a.action_id = q.action_id and a.delivery_state = 'delivery_unknown';
"""


SIZES = [100_000, pytest.param(1_000_000, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1200)])]


@pytest.fixture(scope="module", params=SIZES)
def full(request: pytest.FixtureRequest, postgres_server: Any, ledger_template: str) -> Iterator[Stage]:
    """A ledger of so many actions: 2,000 unknown, 10,000 due, the others settled. Tests roll back what they do."""
    with cloned(postgres_server, ledger_template) as database:
        stage = Stage(database)
        stage.declare()
        stage.owner.execute(LOAD.format(settled=request.param - 12_000).encode())
        stage.owner.execute("vacuum analyze")
        yield stage


def plans(stage: Stage, statement: str, *values: object) -> list[dict[str, Any]]:
    """The plans of every statement that a call runs; what it does is rolled back."""
    found: list[dict[str, Any]] = []
    with psycopg.connect(stage.ledger.dsn(), autocommit=True) as connection:
        connection.execute("load 'auto_explain'")
        for name, value in (
            ("log_min_duration", "0"),
            ("log_nested_statements", "on"),
            ("log_format", "json"),
            ("log_level", "notice"),
        ):
            connection.execute(f"set auto_explain.{name} = {value}".encode())

        def heard(notice: psycopg.errors.Diagnostic) -> None:
            text = notice.message_primary or ""
            if "plan:" in text:
                found.append(json.loads(text.split("plan:", 1)[1]))

        connection.add_notice_handler(heard)
        with connection.transaction(force_rollback=True):
            connection.execute(statement.encode(), values)
    assert found, "auto_explain said nothing"
    return found


def whole_reads(node: dict[str, Any]) -> Iterator[str]:
    """Growing tables that a plan reads whole."""
    if node.get("Node Type") == "Seq Scan" and node.get("Relation Name") in GROWING:
        yield node["Relation Name"]
    for child in node.get("Plans", ()):
        yield from whole_reads(child)


def quadratic_joins(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Nested loops that read one transition table for every row of another."""
    parts = node.get("Plans", ())
    if node.get("Node Type") == "Nested Loop" and all(reads_tuplestore(part) for part in parts[:2]):
        yield node
    for part in parts:
        yield from quadratic_joins(part)


def reads_tuplestore(node: dict[str, Any]) -> bool:
    return node.get("Node Type") == "Named Tuplestore Scan" or any(map(reads_tuplestore, node.get("Plans", ())))


DEMAND = json.dumps([{"provider": "mail", "account": "default", "slots": 64}])
CLAIM = "select * from outbox.claim_actions(%s, %s, 60000, 1000, 'x')"
LOOK = 'select * from outbox.claim_unknowns(64, %s, 60000, 1000, \'x\', \'{"mail": {"default": {"send": 86400000}}}\')'


def claimed(stage: Stage) -> list[dict[str, object]]:
    """A batch under one token, committed."""
    token = uuid4()
    rows = stage.rows("relay", CLAIM, DEMAND, token)
    return [{"action_id": row["action_id"], "claim_token": token, "reason": "r", "provider_id": "p"} for row in rows]


def looked(stage: Stage) -> list[dict[str, object]]:
    token = uuid4()
    cases = [row["claim_unknowns"] for row in stage.rows("reconciler", LOOK, token)]
    return [{"action_id": case["claim"]["action_id"], "claim_token": token, "reason": "r"} for case in cases]


def assert_index_only(stage: Stage, statement: str, *values: object) -> None:
    for plan in plans(stage, statement, *values):
        assert list(whole_reads(plan["Plan"])) == [], json.dumps(plan)[:2000]


def test_claiming_reads_by_index(full: Stage) -> None:
    assert_index_only(full, CLAIM, DEMAND, uuid4())
    assert_index_only(full, "select * from outbox.recall_claims(%s)", uuid4())


def test_the_guard_of_a_batch_is_not_quadratic(full: Stage) -> None:
    """In whatever function a session's first change was: the plan of a trigger is kept."""
    batch = json.dumps([item | {"event": "accepted"} for item in claimed(full)], default=str)
    for statement, values in ((CLAIM, (DEMAND, uuid4())), ("select * from outbox.record_outcomes(%s)", (batch,))):
        found = plans(full, statement, *values)
        assert any(reads_tuplestore(plan["Plan"]) for plan in found), "no guard was seen"
        assert [join for plan in found for join in quadratic_joins(plan["Plan"])] == []


@pytest.mark.parametrize("event", ["accepted", "refused", "response_lost", "no_effect", "held", "released"])
def test_storing_outcomes_reads_by_index(full: Stage, event: str) -> None:
    batch = json.dumps([item | {"event": event} for item in claimed(full)], default=str)
    assert_index_only(full, "select * from outbox.record_outcomes(%s)", batch)


def test_storing_late_outcomes_reads_by_index(full: Stage) -> None:
    settled = full.rows("owner", "select action_id from outbox.outbound_actions order by created_at desc limit 20")
    items = [
        {"action_id": row["action_id"], "claim_token": uuid4(), "event": "accepted", "reason": "r"} for row in settled
    ]
    assert_index_only(full, "select * from outbox.record_outcomes(%s)", json.dumps(items, default=str))


def test_sweeping_reads_by_index(full: Stage) -> None:
    claimed(full)
    full.advance(120)
    assert_index_only(full, "select outbox.sweep_expired_claims(500, 'relay')")
    assert_index_only(full, "select outbox.sweep_deadlines(500)")
    full.advance(0)


def test_looking_ahead_reads_by_index(full: Stage) -> None:
    assert_index_only(full, "select outbox.next_dispatch_in(%s)", DEMAND)
    assert_index_only(full, "select outbox.next_unknown_in()")


def test_looking_at_unknowns_reads_by_index(full: Stage) -> None:
    assert_index_only(full, LOOK, uuid4())
    for event in ("found", "proven_absent"):
        batch = json.dumps([item | {"event": event} for item in looked(full)], default=str)
        assert_index_only(full, "select * from outbox.record_resolutions(%s)", batch)
    postponed = json.dumps([item | {"delay_ms": 1} for item in looked(full)], default=str)
    assert_index_only(full, "select * from outbox.postpone_unknowns(%s)", postponed)
    asked = json.dumps(
        [item | {"due_in_ms": 1, "missing": "x", "next_step": "y"} for item in looked(full)], default=str
    )
    assert_index_only(full, "select * from outbox.open_reviews(%s)", asked)


def test_an_agents_own_statements_read_by_index(full: Stage) -> None:
    insert = (
        "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
        " values ('mail', 'send', %s, '{\"to\": \"a@example.com\"}') on conflict (idempotency_key) do nothing"
    )
    assert_index_only(full, insert, "new")
    assert_index_only(full, insert, "k77")
    assert_index_only(full, "select * from outbox.enqueue('mail', 'send', 'k77', '{\"to\": \"a@example.com\"}')")
    assert_index_only(full, "select * from outbox.action_status where idempotency_key = 'k77'")
    assert_index_only(full, "select * from outbox.find_action('k77')")
    full.rows("owner", "grant outbox_agent to outbox_owner")
    assert_index_only(full, "select * from outbox.changes('', 100)")
    changes = "select cursor from outbox.changes('', 1000) order by sequence desc limit 1"
    cursor = full.one(changes, role="agent")
    assert_index_only(full, "select * from outbox.changes(%s, 100)", cursor)


def test_retention_and_the_audit_read_by_index(full: Stage) -> None:
    full.advance(400 * 86_400)
    assert full.one("select redacted from outbox.redact_settled(90, null, 2000)", role="reconciler") == 2000
    assert_index_only(full, "select * from outbox.redact_settled(90, null, 500)")
    assert_index_only(full, "select * from outbox.delete_history(90, 0, null, 500)")
    full.advance(0)
    middle = full.one("select action_id from outbox.outbound_actions order by action_id offset 50000 limit 1")
    assert_index_only(full, "select * from outbox.audit_actions(%s, 1000)", middle)
    assert_index_only(full, "select * from outbox.audit_keys('k77', 1000)")
