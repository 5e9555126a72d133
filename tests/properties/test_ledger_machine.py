"""Random lives of actions on a real ledger: two relays, a reconciler, an agent, an operator, and a clock that moves.

The model is a set of facts: what was asked for, what each worker holds, and which attempts reached the provider. After
every step the ledger must agree with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

from outbox_relay.states import TERMINAL, TRANSITIONS, State
from tests.ledger.factories import Row, Stage
from tests.plugins.postgres import PostgresServer, drop_database, make_database

LEASE_S, DEADLINE_S = 30, 10
OUTCOMES = ["accepted", "refused", "no_effect", "held", "response_lost", "released"]
KEYS = st.sampled_from([f"k{number}" for number in range(6)])
INTENTS = st.sampled_from(["a@example.com", "b@example.com"])
EMPTY = """
set session_replication_role = replica;
truncate outbox.outbound_actions, outbox.keys, outbox.work_queue, outbox.action_events, outbox.evidence, outbox.reviews,
  outbox.incidents, outbox.counter_deltas, outbox.counters;
reset session_replication_role;
"""
"""As a replica, because nobody else can truncate history."""
STEPS = {(*t.origin, *t.target) for t in TRANSITIONS}


class LedgerMachine(RuleBasedStateMachine):
    """Every rule is one call of one role."""

    stage: Stage
    claims: Bundle[Row] = Bundle("claims")
    looks: Bundle[Row] = Bundle("looks")

    def __init__(self) -> None:
        super().__init__()
        self.stage.owner.execute(EMPTY.encode())
        self.stage.advance(0)
        self.clock_s = 0.0
        self.run = uuid4().hex[:8]
        self.intents: dict[str, str] = {}
        self.ids: dict[str, UUID] = {}
        self.accepted: dict[UUID, set[str]] = {}
        self.settled: dict[UUID, State] = {}

    # -- The agent -----------------------------------------------------------------------------------------------

    @rule(key=KEYS, to=INTENTS)
    def insert(self, key: str, to: str) -> None:
        name = f"{self.run}:{key}"
        statement = "select * from outbox.enqueue('mail', 'send', %s, jsonb_build_object('to', %s::text))"
        if self.intents.setdefault(name, to) != to:
            assert self.stage.refusal("agent", statement, name, to) == "OB001"
            return
        row = self.stage.rows("agent", statement, name, to)[0]
        assert row["created"] == (name not in self.ids)
        assert self.ids.setdefault(name, row["action_id"]) == row["action_id"]

    @rule(key=KEYS)
    def cancel(self, key: str) -> None:
        action = self.ids.get(f"{self.run}:{key}")
        if action is None:
            return
        before = self.stage.state(action)
        outcome = self.stage.cancel(action)
        assert (outcome == "settled") == (before in TERMINAL)
        assert (outcome == "cancelled") == (self.stage.state(action).execution == "cancelled" != before.execution)

    # -- The relays ----------------------------------------------------------------------------------------------

    @rule(target=claims, slots=st.integers(1, 4))
    def claim(self, slots: int) -> Any:
        claimed = self.stage.claim(slots, lease_ms=LEASE_S * 1000)
        for row in claimed["rows"]:
            facts = self.stage.facts(row["action_id"])
            assert facts["delivery_state"] == "delivery_pending"
            assert not self.stage.rows(
                "owner",
                "select 1 from outbox.evidence where action_id = %s and proves = 'acceptance' and used_at is null",
                row["action_id"],
            ), "an acceptance that nobody has used stops a claim"
        return multiple(*({"id": action, "token": claimed["token"], "at": self.clock_s} for action in claimed["ids"]))

    @rule(claim=claims, event=st.sampled_from(OUTCOMES))
    def report(self, claim: Row, event: str) -> None:
        held = (self.stage.queued(claim["id"]) or {}).get("claim_token") == str(claim["token"])
        provider_id = f"effect-of-{claim['id']}"
        if event == "accepted":
            self.accepted.setdefault(claim["id"], set()).add(provider_id)
        verdict = self.stage.report(claim["id"], claim["token"], event, provider_id=provider_id, retry_in_ms=0)
        assert (verdict == "applied") == held, "the token alone decides"

    # -- The reconciler ------------------------------------------------------------------------------------------

    @rule(target=looks)
    def look(self) -> Any:
        looked = self.stage.look(4, lease_ms=LEASE_S * 1000)
        return multiple(*({"id": action, "token": looked["token"]} for action in looked["ids"]))

    @rule(look=looks, event=st.sampled_from(["found", "proven_absent", "replay_refused"]), resend=st.booleans())
    def resolve(self, look: Row, event: str, resend: bool) -> None:
        known = self.accepted.get(look["id"], set())
        if event == "found":
            self.accepted.setdefault(look["id"], set()).add(f"effect-of-{look['id']}")
        elif known:
            event, resend = "late_acceptance", False
        more = {"provider_id": f"effect-of-{look['id']}"} if event in ("found", "late_acceptance") else {}
        verdict = self.stage.resolve(look["id"], event, token=look["token"], resend=resend, **more)
        assert verdict in ("applied", "stale")

    @rule(look=looks)
    def replay(self, look: Row) -> None:
        before = self.stage.facts(look["id"])
        statement = "select * from outbox.begin_replay(%s, %s, %s, %s)"
        begun = self.stage.rows("reconciler", statement, look["id"], look["token"], LEASE_S * 1000, DEADLINE_S * 1000)
        if begun:
            assert before["delivery_state"] == "delivery_unknown"
            assert before["cancel_requested_at"] is None
            assert begun[0]["wire_key"] == before["wire_key"]

    @rule(look=looks)
    def ask(self, look: Row) -> None:
        queued = self.stage.queued(look["id"]) or {}
        if queued.get("claim_token") == str(look["token"]):
            self.stage.ask(look["id"], token=look["token"], look_again_in_ms=0)

    # -- The operator and the clock ------------------------------------------------------------------------------

    @rule(decision=st.sampled_from(["confirmed", "failed", "abandoned", "resend", "release", "cancel", "noted"]))
    def decide(self, decision: str) -> None:
        for review in self.stage.rows("operator", "select review_id from outbox.list_reviews()")[:1]:
            refused = self.stage.refusal(
                "operator", "select outbox.decide_review(%s, %s, 'tested')", review["review_id"], decision
            )
            assert refused in (None, "OB002")
            if refused is None:
                self.stage.decide(review["review_id"], decision)

    @rule(seconds=st.sampled_from([1, LEASE_S + 1, 120]))
    def pass_time(self, seconds: int) -> None:
        self.clock_s += seconds
        self.stage.advance(self.clock_s)

    @rule(role=st.sampled_from(["relay", "reconciler"]))
    def sweep(self, role: str) -> None:
        self.stage.sweep(role)
        late = "select count(*) from outbox.work_queue where claimed_until < outbox.now() - interval '1 second'"
        assert self.stage.one(late) == 0

    # -- What is always true -------------------------------------------------------------------------------------

    @invariant()
    def every_action_is_where_the_facts_put_it(self) -> None:
        for action in self.ids.values():
            state, queued = self.stage.state(action), self.stage.queued(action)
            assert (queued is None) == (state in TERMINAL), "open is in the queue, settled is not"
            facts = self.stage.facts(action)
            if action in self.settled:
                assert state == self.settled[action], "what is settled stays settled"
            elif state in TERMINAL:
                self.settled[action] = state
            if self.accepted.get(action) and state in TERMINAL:
                known = "confirmed" in state.delivery or facts["duplicate_suspected"]
                assert known, "an acceptance that was reported is a state, or a suspicion before a person"

    @invariant()
    def history_tells_the_same_story(self) -> None:
        rows = self.stage.rows(
            "owner",
            "select data::jsonb as d, sequence from outbox.action_events where action_id = any(%s)"
            " order by action_id, sequence",
            list(self.ids.values()),
        )
        for row in rows:
            if row["sequence"] > 1:
                d = row["d"]
                before = (d["previous_execution_state"], d["previous_delivery_state"])
                after = (d["execution_state"], d["delivery_state"])
                assert before == after or (*before, *after) in STEPS

    @invariant()
    def counters_add_up(self) -> None:
        counters = self.stage.one("select outbox.action_counters()", role="operator")
        assert sum(c["total"] for c in counters["created"]) == sum(s["total"] for s in counters["states"])


@pytest.fixture
def machine(postgres_server: PostgresServer, ledger_template: str) -> Iterator[type[LedgerMachine]]:
    """The machine on a ledger of its own, emptied before each run."""
    database = make_database(postgres_server, ledger_template)
    stage = Stage(database)
    stage.declare({"retry_limit": 2})
    yield type("Machine", (LedgerMachine,), {"stage": stage})
    drop_database(database)


def test_no_sequence_of_calls_breaks_the_ledger(machine: type[LedgerMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
