"""Queue row first, in order of action id, then the ledger: shown by waiting on the lock view, and by eight sessions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from outbox_relay.states import DeliveryState, ExecutionState
from tests.ledger.crowd import Crowd
from tests.ledger.factories import Stage
from tests.ledger.test_insert import waits_for_a_lock

REPLAY = "select * from outbox.begin_replay(%s, %s, 1000, 1000)"


class Meanwhile(threading.Thread):
    """Something that another session does while ours holds its locks."""

    def __init__(self, stage: Stage, role: str, act: Callable[[Stage], object]) -> None:
        super().__init__(daemon=True)
        self.other = Stage(stage.ledger)
        self.pid = self.other.as_(role).info.backend_pid
        self.other.as_("owner")
        self._stage, self._act = stage, act
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._act(self.other)
        except psycopg.Error as error:
            self.result = error.sqlstate

    def waits(self) -> None:
        """Return once it waits for a lock."""
        waits_for_a_lock(self._stage, self.pid)

    def done(self) -> object:
        """What came of it."""
        self.join(20)
        assert not self.is_alive()
        return self.result


def test_a_cancel_waits_for_an_outcome_and_then_speaks_of_what_it_found(stage: Stage) -> None:
    action, token = stage.started()
    with stage.as_("relay").transaction():
        stage.report(action, token, "response_lost")
        cancel = Meanwhile(stage, "agent", lambda other: other.cancel(action))
        cancel.waits()
    assert cancel.done() == "cancel_requested"
    assert stage.facts(action)["cancel_requested_at"] is not None


def test_an_outcome_waits_for_a_cancel_and_honours_it(stage: Stage) -> None:
    action, token = stage.started()
    with stage.as_("agent").transaction():
        stage.cancel(action)
        outcome = Meanwhile(stage, "relay", lambda other: other.report(action, token, "no_effect"))
        outcome.waits()
    assert outcome.done() == "applied"
    assert stage.state(action).execution is ExecutionState.CANCELLED


def test_an_outcome_that_waits_for_the_sweep_is_late_and_kept(stage: Stage) -> None:
    action = stage.insert()
    token = stage.claim(lease_ms=0)["token"]
    with stage.as_("relay").transaction():
        assert stage.sweep() == 1
        late = Meanwhile(stage, "relay", lambda other: other.report(action, token, "accepted", provider_id="id-1"))
        late.waits()
    assert late.done() == "stale"
    assert stage.look()["cases"][0]["unused_acceptance"]["provider_id"] == "id-1"


def test_a_sweep_passes_an_outcome_that_is_being_stored(stage: Stage) -> None:
    action = stage.insert()
    token = stage.claim(lease_ms=0)["token"]
    with stage.as_("relay").transaction():
        stage.report(action, token, "accepted", provider_id="id-1")
        assert Meanwhile(stage, "reconciler", lambda other: other.sweep("reconciler")).done() == 0
    assert stage.state(action).delivery is DeliveryState.DELIVERY_CONFIRMED


def test_a_conclusion_waits_for_a_decision_and_is_fenced(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action, look_again_in_ms=0)
    token = stage.look()["token"]
    with stage.as_("operator").transaction():
        stage.decide(review, "failed")
        found = Meanwhile(
            stage, "reconciler", lambda other: other.resolve(action, "found", token=token, provider_id="9")
        )
        found.waits()
    assert found.done() == "stale"
    assert stage.state(action).delivery is DeliveryState.RECONCILED_FAILED
    assert stage.facts(action)["duplicate_suspected"], "but it was heard"


def test_a_decision_waits_for_a_conclusion_and_is_refused(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action, look_again_in_ms=0)
    token = stage.look()["token"]
    with stage.as_("reconciler").transaction():
        stage.resolve(action, "found", token=token, provider_id="9")
        decision = Meanwhile(stage, "operator", lambda other: other.decide(review, "failed"))
        decision.waits()
    assert decision.done() == "OB009"


def test_two_decisions_at_the_same_time_are_one(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="1")
    stage.late_acceptance(action, "2")
    review = stage.review_of(action)
    with stage.as_("operator").transaction():
        stage.decide(review, "noted")
        second = Meanwhile(stage, "operator", lambda other: other.decide(review, "noted"))
        second.waits()
    assert second.done() == "OB009"


def test_a_late_acceptance_waits_for_a_look_and_is_seen_by_the_next(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    with stage.as_("reconciler").transaction():
        token = stage.look()["token"]
        late = Meanwhile(stage, "relay", lambda other: other.report(action, uuid4(), "accepted", provider_id="1"))
        late.waits()
    assert late.done() == "stale"
    assert stage.rows("reconciler", REPLAY, action, token) == []


@dataclass(frozen=True, slots=True)
class InReview:
    """An unknown that a person and a reconciler look at."""

    action: UUID
    token: UUID
    review: int


CALLS: dict[str, tuple[str, Callable[[Stage, InReview], object]]] = {
    "cancel": ("agent", lambda s, unknown: s.cancel(unknown.action)),
    "late outcome": ("relay", lambda s, unknown: s.report(unknown.action, uuid4(), "accepted")),
    "conclusion": ("reconciler", lambda s, unknown: s.resolve(unknown.action, "found", token=unknown.token)),
    "review": ("reconciler", lambda s, unknown: s.ask(unknown.action, token=unknown.token)),
    "replay": ("reconciler", lambda s, unknown: s.rows("reconciler", REPLAY, unknown.action, unknown.token)),
    "decision": ("operator", lambda s, unknown: s.decide(unknown.review, "failed")),
}


@pytest.mark.parametrize("call", CALLS)
def test_nobody_holds_a_ledger_row_while_waiting_for_its_queue_row(stage: Stage, call: str) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action, look_again_in_ms=0)
    unknown = InReview(action, stage.look()["token"], review)
    role, act = CALLS[call]
    with stage.owner.transaction():
        stage.rows("owner", "select 1 from outbox.work_queue where action_id = %s for update", action)
        meanwhile = Meanwhile(stage, role, lambda other: act(other, unknown))
        meanwhile.waits()
        free = Stage(stage.ledger)
        locked = "select 1 from outbox.outbound_actions where action_id = %s for update nowait"
        assert free.refusal("owner", locked, action) is None, "the ledger row was locked first"
    assert meanwhile.done() not in ("40P01", "55P03")


def test_batches_in_opposite_order_do_not_deadlock(stage: Stage) -> None:
    """Both hold their outcomes until the other one's batch runs too."""
    actions = sorted(stage.insert() for _ in range(40))  # before 18, ids of one millisecond come in any order
    token = stage.claim()["token"]
    stage.declare({}, {"account": "other"})
    held = [
        {"action_id": a, "claim_token": token, "event": "held", "reason": f"r{n % 7}"} for n, a in enumerate(actions)
    ]
    late = [{"action_id": a, "claim_token": uuid4(), "event": "accepted"} for a in reversed(actions)]
    with stage.as_("relay").transaction():
        stage.report_all(held[:20])
        other = Meanwhile(stage, "relay", lambda s: s.report_all(late))
        other.waits()
        stage.report_all(held[20:])
    assert set(other.done().values()) == {"stale"}  # type: ignore[attr-defined]


BATCHES: dict[str, tuple[str, dict[str, object]]] = {
    "record_outcomes": ("relay", {"event": "accepted"}),
    "record_resolutions": ("reconciler", {"event": "found"}),
    "postpone_unknowns": ("reconciler", {"delay_ms": 0}),
    "open_reviews": ("reconciler", {"missing": "x", "next_step": "y", "due_in_ms": 1}),
}


@pytest.mark.parametrize("function", BATCHES)
def test_no_batch_holds_a_settled_action_while_waiting_for_a_queue_row(stage: Stage, function: str) -> None:
    """A settled action has no queue row: what is kept of it must not be kept before the batch's queue rows are held."""
    settled, unknown = sorted([stage.insert(), stage.insert()])
    token = stage.claim()["token"]
    stage.report(settled, token, "accepted")
    stage.report(unknown, token, "response_lost")
    role, values = BATCHES[function]
    batch = [{"action_id": a, "claim_token": uuid4(), "reason": "r"} | values for a in (settled, unknown)]
    statement = sql.SQL("select verdict from outbox.{}(%s)").format(sql.Identifier(function))
    given = [json.dumps(batch, default=str)]
    with stage.owner.transaction():
        stage.rows("owner", "select 1 from outbox.work_queue where action_id = %s for update", unknown)
        meanwhile = Meanwhile(stage, role, lambda other: other.as_(role).execute(statement, given).fetchall())
        meanwhile.waits()
        locked = "select 1 from outbox.outbound_actions where action_id = %s for update nowait"
        assert Stage(stage.ledger).refusal("owner", locked, settled) is None, "the ledger row was locked first"
    assert meanwhile.done() == [{"verdict": "stale"}] * 2


@pytest.mark.parametrize("operations", [3200, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_eight_sessions_of_everybody_never_deadlock(stage: Stage, operations: int) -> None:
    stage.declare({"retry_limit": 1}, {"account": "other", "retry_limit": 1})
    crowd = Crowd(stage, seed=7)
    crowd.run(sessions=8, steps=operations // 8)
    assert crowd.unexpected == []
    assert crowd.done == operations
    crowd.check_books()
