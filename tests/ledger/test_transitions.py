"""Every state x event x actor, generated from the states: what is listed works, everything else changes nothing."""

from __future__ import annotations

import itertools
import json
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox_relay.states import (
    RECEIPT_TRANSITIONS,
    STATES,
    TRANSITIONS,
    Actor,
    Event,
    ExecutionState,
    ReceiptState,
    State,
    Transition,
)
from tests.ledger.factories import NUMBERED, Stage, put_into
from tests.ledger.steps import STEPS

_RECORDS = "select data from outbox.action_events where action_id = %s order by sequence"

DECISIONS = ("confirmed", "failed", "abandoned", "resend", "release", "cancel", "noted")


def named(value: object) -> str | None:
    if isinstance(value, Transition):
        origin, target = value.origin, value.target
        return f"{origin.execution}.{origin.delivery}-{value.event}-{value.actor}-{target.execution}"
    return f"{value.execution}.{value.delivery}" if isinstance(value, State) else None


def test_the_ledgers_steps_are_the_programs_steps(stage: Stage) -> None:
    columns = "event, actor, from_execution, from_delivery, to_execution, to_delivery"
    stored = {tuple(row.values()) for row in stage.rows("owner", f"select {columns} from outbox.transitions")}
    assert stored == {(t.event, t.actor, *t.origin, *t.target) for t in TRANSITIONS}
    receipts = "select event, actor, from_receipt, to_receipt from outbox.receipt_transitions"
    assert {tuple(row.values()) for row in stage.rows("owner", receipts)} == {tuple(t) for t in RECEIPT_TRANSITIONS}


# -- Legal steps, by the functions that take them ---------------------------------------------------------------------


def has_no_function(step: Transition) -> bool:
    """Listed, but taken by no function: a relay holds only what it claimed, an operator cancels only what is held."""
    unheld = step.origin.execution in (ExecutionState.ACTION_CREATED, ExecutionState.RETRY_SCHEDULED)
    return unheld and (step.event, step.actor) in {(Event.HELD, Actor.RELAY), (Event.CANCELLED, Actor.OPERATOR)}


@pytest.mark.parametrize("step", [t for t in TRANSITIONS if not has_no_function(t)], ids=named)
def test_a_listed_step_is_taken_by_its_function_and_told_once(stage: Stage, step: Transition) -> None:
    action = STEPS[step.event, step.actor](stage, step.origin, step.target)
    assert stage.state(action) == step.target
    facts = stage.facts(action)
    events = (
        "select sequence, occurred_at, data::jsonb as data from outbox.action_events where action_id = %s"
        " order by sequence"
    )
    told = stage.rows("owner", events, action)
    times = [row["occurred_at"] for row in told]
    assert times == sorted(set(times)), "every event has a time of its own"
    assert times[-1] == facts["updated_at"]
    assert [row["sequence"] for row in told] == list(range(1, facts["event_sequence"] + 1))
    moves = [row["data"] for row in told if row["data"]["event"] == step.event]
    assert [(move["previous_execution_state"], move["previous_delivery_state"]) for move in moves[-1:]] == [step.origin]
    assert (moves[-1]["execution_state"], moves[-1]["delivery_state"]) == step.target
    open_still = step.target in {t.origin for t in TRANSITIONS}
    assert (stage.queued(action) is not None) == open_still, "what is open is in the queue, and nothing else"


def test_no_free_text_breaks_a_record(stage: Stage) -> None:
    """A record is put together as text: whatever a provider answers or a name holds, it reads back the same."""
    hostile = 'a"b\\c\n\t\x01 \u00fc\U0001f600 {"x": null} %s $$'
    names = {"provider": hostile, "account": hostile, "operation": hostile}
    stage.declare(names)
    action = stage.insert(**names)
    token = stage.claim(provider=hostile, account=hostile)["token"]
    stage.report(action, token, "accepted", reason=hostile, provider_id=hostile)
    created, _, accepted = [json.loads(row["data"]) for row in stage.rows("owner", _RECORDS, action)]
    for name in names:
        assert {created[name], accepted[name]} == {hostile}
    assert (accepted["reason"], accepted["provider_id"]) == (hostile, hostile)
    assert [created[name] for name in ("reason", "provider_id", "resolution", "previous_delivery_state")] == [None] * 4


def test_every_event_of_every_actor_has_a_function() -> None:
    assert set(STEPS) == {(t.event, t.actor) for t in TRANSITIONS}


# -- Illegal steps -----------------------------------------------------------------------------------------------------

TRY = """
do $do$
declare
  v_event text; v_actor text; v_to record; v_passed jsonb := '[]'; v_state text;
begin
  for v_event, v_actor in select e, a from unnest(%(events)s::text[]) e cross join unnest(%(actors)s::text[]) a loop
    for v_to in select * from jsonb_to_recordset(%(targets)s) as t (execution text, delivery text) loop
      begin
        update outbox.outbound_actions set execution_state = v_to.execution, delivery_state = v_to.delivery,
          last_event = v_event, last_actor = v_actor, event_sequence = event_sequence + 1,
          updated_at = greatest(outbox.now(), updated_at) where action_id = %(action)s;
        v_passed := v_passed || jsonb_build_array(jsonb_build_array(v_event, v_actor, v_to.execution, v_to.delivery));
        raise exception 'taken back' using errcode = 'ZZ001';
      exception
        when sqlstate 'ZZ001' or sqlstate 'OB002' then null;
      end;
    end loop;
  end loop;
  perform set_config('tests.passed', v_passed::text, false);
end $do$"""


@pytest.mark.parametrize("origin", STATES, ids=named)
def test_an_update_that_is_not_a_listed_step_is_refused_to_the_owner_too(stage: Stage, origin: State) -> None:
    action = put_into(stage, origin)
    before = stage.everything(action)
    values = {
        "events": list(Event),
        "actors": list(Actor),
        "targets": json.dumps([state._asdict() for state in STATES if state != origin]),
        "action": action,
    }
    cursor = psycopg.ClientCursor(stage.owner)
    cursor.execute(TRY, values)
    passed = {tuple(item) for item in json.loads(stage.one("select current_setting('tests.passed')"))}
    assert passed == {(t.event, t.actor, *t.target) for t in TRANSITIONS if t.origin == origin}
    assert stage.everything(action) == before


CALLS = {
    "relay": "select outbox.record_outcomes(%s)",
    "reconciler": "select outbox.record_resolutions(%s)",
}


@pytest.mark.parametrize("origin", STATES, ids=named)
@pytest.mark.parametrize("role", ["relay", "reconciler"])
def test_a_worker_takes_from_here_only_what_is_listed_for_it(stage: Stage, origin: State, role: str) -> None:
    """With the very token of the claim, if there is one: what is stale or refused leaves the state."""
    action = put_into(stage, origin)
    item = {"action_id": action, "claim_token": arm(stage, action), "reason": "test", "provider_id": "x"}
    taken = set()
    for event, resend in itertools.product(Event, [True, False]):
        stage.as_(role).execute("begin")
        rows = json.dumps([item | {"event": event, "resend": resend}], default=str)
        refused = stage.refusal(role, CALLS[role], rows)
        assert refused in (None, "OB002")
        if refused is None and "applied" in stage.one(CALLS[role], rows, role=role):
            taken.add(event)
        stage.as_(role).execute("rollback")
    assert taken <= {t.event for t in TRANSITIONS if (t.origin, t.actor) == (origin, role)}
    assert stage.state(action) == origin


def arm(stage: Stage, action: UUID) -> UUID:
    """The token of the claim on this action, as a worker that took it a moment ago would know it."""
    queued = stage.queued(action)
    if queued is None:
        return uuid4()
    if queued["claim_token"] is not None:
        return UUID(queued["claim_token"])
    token = uuid4()
    claimed = "update outbox.work_queue set claim_token = %s, claimed_until = 'infinity' where action_id = %s"
    stage.rows("owner", claimed, token, action)
    return token


@pytest.mark.parametrize("origin", STATES, ids=named)
def test_an_operator_decides_only_what_the_state_allows(stage: Stage, origin: State) -> None:
    action = put_into(stage, origin)
    review = with_review(stage, action)
    allowed = {
        ExecutionState.ON_HOLD: {"release", "cancel"},
        ExecutionState.DISPATCH_FINISHED: {"confirmed", "failed", "abandoned", "resend"},
    }
    listed = allowed.get(origin.execution, set()) if stage.queued(action) else {"noted"}
    decide = "select outbox.decide_review(%s, %s, 'tested')"
    refused = {decision: stage.refusal("operator", decide, review, decision) for decision in DECISIONS}
    assert set(refused.values()) <= {None, "OB002"}
    taken = {decision for decision, sqlstate in refused.items() if sqlstate is None}
    assert taken == listed
    assert stage.state(action) == origin


def with_review(stage: Stage, action: UUID) -> int:
    """An open review on this action, whatever its state."""
    stage.one("select outbox.open_review(%s, 'test', 'test', 'test', 'test', 1000)", action)
    return stage.review_of(action)


@pytest.mark.parametrize("origin", STATES, ids=named)
def test_a_cancel_withdraws_only_what_was_not_sent(stage: Stage, origin: State) -> None:
    action = put_into(stage, origin)
    outcome = stage.cancel(action)
    cancellable = {t.origin for t in TRANSITIONS if (t.event, t.actor) == (Event.CANCELLED, Actor.AGENT)}
    if origin in cancellable:
        assert (outcome, stage.state(action).execution) == ("cancelled", ExecutionState.CANCELLED)
    else:
        assert outcome == ("settled" if stage.queued(action) is None else "cancel_requested")
        assert stage.state(action) == origin


@pytest.mark.parametrize("origin", list(ReceiptState))
def test_a_receipt_moves_only_by_a_listed_step(stage: Stage, origin: ReceiptState) -> None:
    stage.declare({"receipts_expected": origin is not ReceiptState.NOT_EXPECTED})
    action = stage.attempt("accepted", provider_id="id-1")
    move = (
        f"update outbox.outbound_actions set receipt_state = %s, last_event = %s, last_actor = %s, {NUMBERED}"
        " where action_id = %s"
    )
    if origin in (ReceiptState.DELIVERED, ReceiptState.UNDELIVERED):
        stage.rows("owner", move, origin, f"receipt_{origin}", "reconciler", action)
    assert stage.facts(action)["receipt_state"] == origin
    passed = set()
    for target, event, actor in itertools.product(
        set(ReceiptState) - {origin}, ("receipt_delivered", "receipt_undelivered", "accepted"), Actor
    ):
        refused = stage.refusal("owner", move, target, event, actor, action)
        assert refused in (None, "OB002")
        if refused is None:
            passed.add((event, actor, origin, target))
    assert passed == {tuple(t) for t in RECEIPT_TRANSITIONS if t.origin == origin}
