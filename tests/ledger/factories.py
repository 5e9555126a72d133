"""Everybody who works with one ledger, each under its own role, and actions in every state by real functions.

Nothing here writes a table directly but `stage.owner`; a test that uses that plays a clock or an attacker, never a
participant. Time does not pass: `advance` moves the ledger's clock, in this test's database only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from outbox_relay.states import DeliveryState, ExecutionState, State
from tests.plugins.postgres import TrialDatabase

LEASE_MS = 60_000
PAYLOAD = {"to": "a@example.com", "text": "hello"}
TIMED = "updated_at = greatest(outbox.now(), updated_at)"
NUMBERED = f"event_sequence = event_sequence + 1, {TIMED}"
"""What every UPDATE that makes an event says of it."""
ACCOUNT: dict[str, object] = {
    "provider": "mail",
    "account": "default",
    "operation": "send",
    "mode": "live",
    "contract_version": "1+abc",
    "base_url": "https://mail.example.com",
    "account_identity": "team-1",
    "key_max_length": 64,
    "key_pattern": "[A-Za-z0-9:_-]+",
    "key_shared": False,
    "recipient_paths": [["to"]],
    "payload_max_bytes": 100_000,
    "retry_limit": 3,
    "unordered_after_unknown": False,
    "receipts_expected": False,
    "review_owner": "mail-oncall",
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """One ledger and its cast."""

    ledger: TrialDatabase
    _connections: dict[str, psycopg.Connection[Row]] = field(default_factory=dict)

    def as_(self, role: str) -> psycopg.Connection[Row]:
        """This role's connection, in autocommit; the same one every time."""
        if role not in self._connections:
            connection = self.ledger.connect(role)
            connection.row_factory = dict_row  # type: ignore[assignment]
            self._connections[role] = connection  # type: ignore[assignment]
        return self._connections[role]

    @property
    def owner(self) -> psycopg.Connection[Row]:
        """The owner: for arranging and for asserting."""
        return self.as_("owner")

    def rows(self, role: str, statement: LiteralString, *values: object) -> list[Row]:
        """What a statement returns to a role."""
        cursor = self.as_(role).execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: LiteralString, *values: object, role: str = "owner") -> Any:
        """The only value of the only row."""
        rows = self.rows(role, statement, *values)
        return next(iter(rows[0].values())) if rows else None

    # -- The administrator -------------------------------------------------------------------------------------------

    def declare(self, *changes: Row) -> None:
        """Declare these accounts, each the usual one with changes."""
        rows = [ACCOUNT | change for change in changes or ({},)]
        self.one("select outbox.apply_accounts(%s)", json.dumps(rows))

    def advance(self, seconds: float) -> None:
        """Move the ledger's clock to `seconds` after the real one."""
        body = sql.SQL(
            "create or replace function outbox.now() returns timestamptz language sql volatile"
            " as $f$ select clock_timestamp() + {} * interval '1 second' $f$"
        )
        self.owner.execute(body.format(sql.Literal(seconds)))

    # -- The agent ---------------------------------------------------------------------------------------------------

    def insert(self, key: str | None = None, **columns: object) -> UUID:
        """An agent commits an action."""
        values = {"provider": "mail", "operation": "send", "payload": PAYLOAD, "idempotency_key": key or f"k:{uuid4()}"}
        action: UUID = self.insert_as("agent", values | columns)[0]["action_id"]
        return action

    def insert_as(self, role: str, columns: Row) -> list[Row]:
        """A plain INSERT … RETURNING of these columns."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        marks = sql.SQL(", ").join([sql.Placeholder()] * len(columns))
        statement = sql.SQL("insert into outbox.outbound_actions ({}) values ({}) returning action_id")
        values = [json.dumps(value) if isinstance(value, dict | list) else value for value in columns.values()]
        return self.as_(role).execute(statement.format(names, marks), values).fetchall()

    def cancel(self, action: UUID) -> str:
        """The agent withdraws its action."""
        key = self.facts(action)["idempotency_key"]
        outcome: str = self.one("select outcome from outbox.cancel(%s)", key, role="agent")
        return outcome

    # -- The relay ---------------------------------------------------------------------------------------------------

    def claim(self, slots: int = 1000, *, token: UUID | None = None, lease_ms: int = LEASE_MS, **account: str) -> Row:
        """A relay claims; {"token", "ids", "rows"}."""
        token = token or uuid4()
        demand = [{"provider": "mail", "account": "default", "slots": slots} | account]
        statement = "select * from outbox.claim_actions(%s, %s, %s, 1000, 'tester')"
        rows = self.rows("relay", statement, json.dumps(demand), token, lease_ms)
        return {"token": token, "ids": [row["action_id"] for row in rows], "rows": rows}

    def report(self, action: UUID, token: UUID, event: str, **more: object) -> str:
        """A relay reports one outcome; the verdict."""
        return self.report_all([{"action_id": action, "claim_token": token, "event": event} | more])[action]

    def report_all(self, outcomes: list[Row]) -> dict[UUID, str]:
        """A relay reports a batch; the verdicts by action."""
        rows = [{"reason": f"test_{item['event']}"} | item for item in outcomes]
        answers = self.rows("relay", "select * from outbox.record_outcomes(%s)", json.dumps(rows, default=str))
        return {row["action_id"]: row["verdict"] for row in answers}

    def attempt(self, event: str, **more: object) -> UUID:
        """An action that had one attempt with this outcome."""
        action, token = self.started()
        assert self.report(action, token, event, **more) == "applied"
        return action

    def started(self, **columns: object) -> tuple[UUID, UUID]:
        """A claimed action and its token."""
        action = self.insert(None, **columns)
        claimed = self.claim()
        assert action in claimed["ids"]
        return action, claimed["token"]

    def expired(self, *, role: str = "relay") -> UUID:
        """An action whose claim ran out, swept by a relay or a reconciler."""
        action = self.insert()
        assert action in self.claim(lease_ms=0)["ids"]
        assert self.sweep(role) >= 1
        return action

    def sweep(self, role: str = "relay") -> int:
        """Sweep expired claims."""
        swept: int = self.one("select outbox.sweep_expired_claims(500, %s)", role, role=role)
        return swept

    # -- The reconciler ----------------------------------------------------------------------------------------------

    def look(
        self, limit: int = 100, *, token: UUID | None = None, lease_ms: int = LEASE_MS, windows: Row | None = None
    ) -> Row:
        """The reconciler claims; {"token", "ids", "cases"}. `windows`: provider to account to operation to ms."""
        token, windows_json = token or uuid4(), json.dumps(windows or {})
        statement = "select outbox.claim_unknowns(%s, %s, %s, 1000, 'tester', %s) as unknown"
        cases = [row["unknown"] for row in self.rows("reconciler", statement, limit, token, lease_ms, windows_json)]
        return {"token": token, "ids": [UUID(case["claim"]["action_id"]) for case in cases], "cases": cases}

    def resolve(self, action: UUID, event: str, *, token: UUID | None = None, **more: object) -> str:
        """The reconciler concludes, under a claim of its own unless one is given; the verdict."""
        token = token or self._look_at(action)
        item = {"action_id": action, "claim_token": token, "event": event, "reason": event} | more
        statement = "select verdict from outbox.record_resolutions(%s)"
        verdict: str = self.one(statement, json.dumps([item], default=str), role="reconciler")
        return verdict

    def _look_at(self, action: UUID) -> UUID:
        looked = self.look()
        assert action in looked["ids"]
        token: UUID = looked["token"]
        return token

    def ask(self, action: UUID, *, token: UUID | None = None, **more: object) -> int:
        """The reconciler puts an action before a person; the id of the review."""
        request = {
            "action_id": action,
            "claim_token": token or self._look_at(action),
            "reason": "window_closed",
            "missing": "an answer",
            "next_step": "look",
            "due_in_ms": 1000,
        }
        statement = "select verdict from outbox.open_reviews(%s)"
        verdict = self.one(statement, json.dumps([request | more], default=str), role="reconciler")
        assert verdict == "applied"
        return self.review_of(action)

    def late_acceptance(self, action: UUID, provider_id: str = "late-1") -> None:
        """A worker that lost its claim reports the acceptance it read."""
        assert self.report(action, uuid4(), "accepted", provider_id=provider_id) == "stale"

    # -- The operator ------------------------------------------------------------------------------------------------

    def review_of(self, action: UUID) -> int:
        """The open review of an action."""
        review: int = self.one(
            "select review_id from outbox.reviews where action_id = %s and closed_at is null", action
        )
        return review

    def decide(self, review: int, decision: str, reference: str | None = None) -> None:
        """A person decides."""
        statement = "select outbox.decide_review(%s, %s, 'tested', %s)"
        self.one(statement, review, decision, reference, role="operator")

    # -- What is true ------------------------------------------------------------------------------------------------

    def facts(self, action: UUID) -> Row:
        """The whole row."""
        return self.rows("owner", "select * from outbox.outbound_actions where action_id = %s", action)[0]

    def state(self, action: UUID) -> State:
        """Where it is."""
        facts = self.facts(action)
        return State(ExecutionState(facts["execution_state"]), DeliveryState(facts["delivery_state"]))

    def queued(self, action: UUID) -> Row | None:
        """Its queue row."""
        # As JSON: a queue row may be due at infinity, which Python's clock does not know.
        found: Row | None = self.one("select to_jsonb(q) from outbox.work_queue q where action_id = %s", action)
        return found

    def refusal(self, role: str, statement: str | sql.Composed, *values: object) -> str | None:
        """Try a statement and take it back; the SQLSTATE with which it was refused, None when it passed."""
        connection = self.as_(role)
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(statement.encode() if isinstance(statement, str) else statement, values or None)
        except psycopg.Error as error:
            return error.sqlstate or str(error)
        return None

    def everything(self, action: UUID) -> Row:
        """All that is stored of an action: what a refused step must leave alone."""
        tables = ("outbound_actions", "work_queue", "action_events", "evidence", "reviews")
        statement = "select to_jsonb(t) as row from outbox.{} t where action_id = %s order by 1"
        found: dict[str, list[Row]] = {}
        for table in tables:
            query = sql.SQL(statement).format(sql.Identifier(table))
            found[table] = self.owner.execute(query, [action]).fetchall()
        return found


def put_into(stage: Stage, state: State) -> UUID:
    """An action that real functions, each called by its own role, led into this state."""
    match state.execution, state.delivery:
        case ExecutionState.ACTION_CREATED, _:
            return stage.insert()
        case ExecutionState.DISPATCH_STARTED, _:
            return stage.started()[0]
        case ExecutionState.RETRY_SCHEDULED, _:
            return stage.attempt("no_effect", retry_in_ms=0)
        case ExecutionState.ON_HOLD, _:
            return stage.attempt("held")
        case ExecutionState.CANCELLED, _:
            action = stage.insert()
            assert stage.cancel(action) == "cancelled"
            return action
        case ExecutionState.EXPIRED, _:
            return expire(stage, stage.insert(deliver_by=in_one_hour(stage)))
        case _, delivery:
            return _finished(stage, delivery)


def _finished(stage: Stage, delivery: DeliveryState) -> UUID:
    if delivery is DeliveryState.DELIVERY_CONFIRMED:
        return stage.attempt("accepted", provider_id="id-1")
    if delivery is DeliveryState.DELIVERY_REJECTED:
        return stage.attempt("refused")
    action = stage.attempt("response_lost")
    if delivery is DeliveryState.RECONCILED_CONFIRMED:
        assert stage.resolve(action, "found", provider_id="id-1") == "applied"
    elif delivery is DeliveryState.RECONCILED_FAILED:
        assert stage.resolve(action, "proven_absent") == "applied"
    elif delivery is DeliveryState.ABANDONED:
        stage.decide(stage.ask(action), "abandoned")
    return action


def in_one_hour(stage: Stage) -> str:
    """A deadline."""
    instant: str = stage.one("select (outbox.now() + interval '1 hour')::text")
    return instant


def expire(stage: Stage, action: UUID) -> UUID:
    """Let the deadline of an action pass, and turn the clock back."""
    stage.advance(2 * 3600)
    assert stage.one("select outbox.sweep_deadlines(500)", role="reconciler") >= 1
    stage.advance(0)
    return action
