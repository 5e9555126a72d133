"""Every way to insert, under the agent's role alone: the same intent adds nothing, another one is refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.types.json import Json, Jsonb

from tests.ledger.factories import PAYLOAD, Row, Stage

PLAIN = (
    "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
    " values ('mail', 'send', %s, %s)"
)
Agent = psycopg.Connection[Row]
Way = Callable[[Agent, str, Row], None]


def insert_plain(agent: Agent, key: str, payload: Row) -> None:
    agent.execute(PLAIN, [key, Jsonb(payload)])


def insert_text(agent: Agent, key: str, payload: Row) -> None:
    agent.execute(PLAIN, [key, json.dumps(payload)])


def insert_returning(agent: Agent, key: str, payload: Row) -> None:
    agent.execute(PLAIN + " returning action_id, idempotency_key", [key, Jsonb(payload)]).fetchall()


def insert_or_nothing(agent: Agent, key: str, payload: Row) -> None:
    agent.execute(PLAIN + " on conflict do nothing", [key, Jsonb(payload)])


def insert_or_nothing_by_key(agent: Agent, key: str, payload: Row) -> None:
    agent.execute(PLAIN + " on conflict (idempotency_key) do nothing returning action_id", [key, Jsonb(payload)])


def insert_twice_in_one_statement(agent: Agent, key: str, payload: Row) -> None:
    agent.execute(PLAIN + ", ('mail', 'send', %s, %s)", [key, Jsonb(payload), key, Jsonb(payload)])


def insert_by_copy(agent: Agent, key: str, payload: Row) -> None:
    columns = "provider, operation, idempotency_key, payload"
    with agent.cursor().copy(f"copy outbox.outbound_actions ({columns}) from stdin") as copy:
        copy.write_row(("mail", "send", key, json.dumps(payload)))


def insert_in_a_savepoint(agent: Agent, key: str, payload: Row) -> None:
    with agent.transaction(), agent.transaction():
        insert_plain(agent, key, payload)


def insert_prepared(agent: Agent, key: str, payload: Row) -> None:
    agent.execute(PLAIN, [key, Jsonb(payload)], prepare=True)


def at_level(agent: Agent, level: str, key: str, payload: Row) -> None:
    fresh = agent.info.transaction_status is TransactionStatus.IDLE
    with agent.transaction():
        if fresh:
            agent.execute(f"set transaction isolation level {level}".encode())
        insert_plain(agent, key, payload)


def insert_serializable(agent: Agent, key: str, payload: Row) -> None:
    at_level(agent, "serializable", key, payload)


def insert_repeatable_read(agent: Agent, key: str, payload: Row) -> None:
    at_level(agent, "repeatable read", key, payload)


def enqueue_as(cast: str, wrap: Callable[[Row], object]) -> Way:
    def enqueue(agent: Agent, key: str, payload: Row) -> None:
        statement = f"select * from outbox.enqueue('mail', 'send', %s, %s{cast})"
        agent.execute(statement.encode(), [key, wrap(payload)]).fetchall()

    return enqueue


def enqueue_by_name(agent: Agent, key: str, payload: Row) -> None:
    named = "provider => 'mail', operation => 'send', idempotency_key => %s, payload => %s, priority => 1"
    agent.execute(f"select * from outbox.enqueue({named})".encode(), [key, Jsonb(payload)]).fetchall()


WAYS: dict[str, Way] = {
    "plain": insert_plain,
    "text": insert_text,
    "returning": insert_returning,
    "on conflict": insert_or_nothing,
    "on conflict of key": insert_or_nothing_by_key,
    "twice at once": insert_twice_in_one_statement,
    "copy": insert_by_copy,
    "savepoint": insert_in_a_savepoint,
    "prepared": insert_prepared,
    "serializable": insert_serializable,
    "repeatable read": insert_repeatable_read,
    "enqueue untyped": enqueue_as("", json.dumps),
    "enqueue text": enqueue_as("::text", json.dumps),
    "enqueue varchar": enqueue_as("::varchar", json.dumps),
    "enqueue json": enqueue_as("", Json),
    "enqueue jsonb": enqueue_as("", Jsonb),
    "enqueue by name": enqueue_by_name,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_insert_adds_one_action_however_often(stage: Stage, way: str) -> None:
    agent = stage.as_("agent")
    for _ in range(2):
        WAYS[way](agent, "k1", PAYLOAD)
    insert_plain(agent, "k1", PAYLOAD)
    found = stage.rows("owner", "select recipient, created_by, payload from outbox.outbound_actions")
    assert found == [{"recipient": "a@example.com", "created_by": "outbox_agent", "payload": PAYLOAD}]
    for table in ("keys", "work_queue", "action_events"):
        assert stage.one(f"select count(*) from outbox.{table}") == 1


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_insert_refuses_another_intent_in_the_agents_words(stage: Stage, way: str) -> None:
    agent = stage.as_("agent")
    first = stage.insert("k1")
    with agent.transaction():
        insert_plain(agent, "business", PAYLOAD)
        with pytest.raises(psycopg.Error) as refused, agent.transaction():
            WAYS[way](agent, "k1", PAYLOAD | {"to": "b@example.com"})
        insert_plain(agent, "goes-on", PAYLOAD)
    diagnosis = refused.value.diag
    assert diagnosis.sqlstate == "OB001"
    assert "follows_action_id" in (diagnosis.message_hint or "")
    assert json.loads(diagnosis.message_detail or "") == {
        "action_id": str(first),
        "execution_state": "action_created",
        "delivery_state": "delivery_pending",
        "advice": "wait",
        "differs": "recipient, payload",
    }
    keys = stage.rows("owner", "select idempotency_key from outbox.outbound_actions order by created_at")
    assert [row["idempotency_key"] for row in keys] == ["k1", "business", "goes-on"]


@pytest.mark.parametrize(
    ("part", "value"),
    [("content_version", "v2"), ("account", "other"), ("operation", "other"), ("payload", {"to": "a@example.com"})],
)
def test_every_part_of_the_intent_counts(stage: Stage, part: str, value: object) -> None:
    stage.declare({}, {"account": "other"}, {"operation": "other"})
    stage.insert("k1")
    with pytest.raises(psycopg.Error) as refused:
        stage.insert("k1", **{part: value})
    assert refused.value.sqlstate == "OB001"
    assert json.loads(refused.value.diag.message_detail or "")["differs"] == part


def test_labels_are_no_part_of_the_intent(stage: Stage) -> None:
    stage.insert("k1", priority=0)
    labels = {"priority": 2, "tenant": "t", "ordering_key": "o", "not_before": "2999-01-01", "deliver_by": "2001-01-01"}
    intent = {"provider": "mail", "operation": "send", "payload": PAYLOAD, "idempotency_key": "k1"}
    assert stage.insert_as("agent", intent | labels) == []
    assert stage.one("select priority from outbox.outbound_actions") == 0


def test_enqueue_returns_the_existing_action_with_its_state_and_advice(stage: Stage) -> None:
    enqueue = "select * from outbox.enqueue('mail', 'send', 'k1', %s)"
    first = stage.rows("agent", enqueue, Jsonb(PAYLOAD))[0]
    assert (first["created"], first["advice"]) == (True, "wait")
    stage.report(first["action_id"], stage.claim()["token"], "accepted", provider_id="id-1")
    second = stage.rows("agent", enqueue, Jsonb(PAYLOAD))[0]
    assert second == first | {
        "created": False,
        "execution_state": "dispatch_finished",
        "delivery_state": "delivery_confirmed",
        "advice": "accepted",
    }


def test_a_rolled_back_action_never_was(stage: Stage) -> None:
    agent = stage.as_("agent")
    with agent.transaction(force_rollback=True):
        insert_plain(agent, "k1", PAYLOAD)
    assert stage.claim()["ids"] == []
    stage.insert("k1", payload={"to": "b@example.com"})
    assert len(stage.claim()["ids"]) == 1


# -- Twins at the same time -------------------------------------------------------------------------------------------


def waits_for_a_lock(stage: Stage, pid: int) -> None:
    """Wait until this backend waits for a lock."""
    deadline = time.monotonic() + 20
    blocked = "select cardinality(pg_blocking_pids(%s)) > 0"
    while not stage.one(blocked, pid):
        assert time.monotonic() < deadline, "nobody waits"


class Twin(threading.Thread):
    """Another agent's session that inserts the same key while ours is not committed."""

    def __init__(self, stage: Stage, payload: Row, level: str = "read committed") -> None:
        super().__init__(daemon=True)
        self.agent = Stage(stage.ledger).as_("agent")
        self.pid = self.agent.info.backend_pid
        self.payload, self.level = payload, level
        self.sqlstate: str | None = ""

    def run(self) -> None:
        try:
            with self.agent.transaction():
                self.agent.execute(f"set transaction isolation level {self.level}".encode())
                self.agent.execute("select 1")
                insert_plain(self.agent, "k1", self.payload)
            self.sqlstate = None
        except psycopg.Error as error:
            self.sqlstate = error.sqlstate


OTHER = PAYLOAD | {"to": "b@example.com"}


@pytest.mark.parametrize(
    "case",
    [
        (True, PAYLOAD, "read committed", None, "a@example.com"),
        (True, OTHER, "read committed", "OB001", "a@example.com"),
        (False, PAYLOAD, "read committed", None, "a@example.com"),
        (False, OTHER, "read committed", None, "b@example.com"),
        (True, PAYLOAD, "repeatable read", "40001", "a@example.com"),
        (True, PAYLOAD, "serializable", "40001", "a@example.com"),
        (False, OTHER, "serializable", None, "b@example.com"),
    ],
)
def test_an_uncommitted_twin_is_waited_for(stage: Stage, case: tuple[bool, Row, str, str | None, str]) -> None:
    commits, payload, level, expected, recipient = case
    agent = stage.as_("agent")
    twin = Twin(stage, payload, level)
    with agent.transaction(force_rollback=not commits):
        insert_plain(agent, "k1", PAYLOAD)
        twin.start()
        waits_for_a_lock(stage, twin.pid)
    twin.join(20)
    assert twin.sqlstate == expected
    assert stage.rows("owner", "select recipient from outbox.outbound_actions") == [{"recipient": recipient}]


def test_a_hundred_thousand_rows_in_one_statement_stay_linear(stage: Stage) -> None:
    many = (
        "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
        " select 'mail', 'send', %s || n, '{\"to\": \"a@example.com\"}' from generate_series(1, %s) n"
    )

    def seconds(prefix: str, rows: int) -> float:
        started = time.monotonic()
        stage.rows("agent", many, prefix, rows)
        return time.monotonic() - started

    seconds("warm", 1000)
    few = min(seconds("few-a", 10_000), seconds("few-b", 10_000))
    assert seconds("many", 100_000) < few * 10 * 3
    assert stage.one("select count(*) from outbox.work_queue") == 121_000


def test_twins_of_other_intent_in_one_statement_are_refused_together(stage: Stage) -> None:
    agent = stage.as_("agent")
    with pytest.raises(psycopg.Error) as refused:
        agent.execute(PLAIN + ", ('mail', 'send', %s, %s)", ["k1", Jsonb(PAYLOAD), "k1", Jsonb(OTHER)])
    assert refused.value.sqlstate == "OB001"
    assert stage.rows("owner", "select * from outbox.keys") == []
