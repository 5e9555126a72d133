"""A worker that lost its claim changes nothing, and what it learned is never lost."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from outbox_relay.states import DeliveryState, ExecutionState, State
from tests.ledger.factories import Stage, in_one_hour

CONFIRMED = State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_CONFIRMED)
UNKNOWN = State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN)
RECONCILED = State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)
FAILED = State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_FAILED)
RETRY = State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING)
STARTED = State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING)
EVENTS = ["accepted", "refused", "response_lost", "no_effect", "held", "released"]


@pytest.mark.parametrize("event", EVENTS)
def test_a_stale_token_cannot_change_a_state(stage: Stage, event: str) -> None:
    action, _ = stage.started()
    before = stage.facts(action)
    assert stage.report(action, uuid4(), event, provider_id="x") == "stale"
    after = stage.facts(action)
    assert after == before


@pytest.mark.parametrize("event", EVENTS)
def test_an_outcome_counts_once(stage: Stage, event: str) -> None:
    action, token = stage.started()
    assert stage.report(action, token, event, provider_id="x") == "applied"
    state = stage.state(action)
    assert stage.report(action, token, event, provider_id="x") == "stale"
    assert stage.state(action) == state
    assert not stage.facts(action)["duplicate_suspected"]


def test_an_expired_claim_becomes_unknown_and_never_ready(stage: Stage) -> None:
    action = stage.expired()
    assert stage.state(action) == UNKNOWN
    assert stage.claim()["ids"] == []
    assert stage.look()["ids"] == [action]
    kinds = stage.rows("owner", "select kind, reason from outbox.evidence where action_id = %s", action)
    assert kinds == [{"kind": "no_response", "reason": "claim_expired"}]


def test_a_lease_that_has_not_run_out_is_left_alone(stage: Stage) -> None:
    action, token = stage.started()
    assert stage.sweep() == 0
    stage.advance(61)
    assert stage.report(action, token, "accepted", provider_id="x") == "applied", "late, but nobody took it away"


def test_a_late_acceptance_resolves_the_unknown(stage: Stage) -> None:
    action = stage.expired()
    stage.late_acceptance(action, "id-7")
    looked = stage.look()
    assert looked["cases"][0]["unused_acceptance"]["provider_id"] == "id-7"
    assert stage.resolve(action, "late_acceptance", token=looked["token"], provider_id="id-7") == "applied"
    facts = stage.facts(action)
    assert (stage.state(action), facts["provider_id"], facts["resolution"]) == (RECONCILED, "id-7", "response")
    assert stage.one("select count(*) from outbox.evidence where proves = 'acceptance' and used_at is null") == 0


LEARNED = {"found": "lookup", "replay_accepted": "replay", "receipt_arrived": "receipt"}


@pytest.mark.parametrize("event", LEARNED)
def test_what_a_reconciler_learned_without_its_claim_settles_by_how_it_was_learned(stage: Stage, event: str) -> None:
    other, action = stage.expired(), stage.expired()
    stage.late_acceptance(other, "id-of-other")
    seen = {"kind": LEARNED[event], "proves": "acceptance", "reason": event}
    assert stage.resolve(action, event, token=uuid4(), provider_id="id-7", evidence=seen) == "stale"
    looked = stage.look()
    case = next(case for case in looked["cases"] if case["claim"]["action_id"] == str(action))
    assert (case["unused_acceptance"]["kind"], case["unused_acceptance"]["provider_id"]) == (LEARNED[event], "id-7")
    for each, provider_id in ((action, "id-7"), (other, "id-of-other")):
        assert stage.resolve(each, "late_acceptance", token=looked["token"], provider_id=provider_id) == "applied"
    assert (stage.state(action), stage.facts(action)["resolution"]) == (RECONCILED, LEARNED[event])
    assert stage.facts(other)["resolution"] == "response"


@pytest.mark.parametrize("state", ["no_effect", "held", "forgotten"])
def test_a_late_acceptance_stops_what_would_be_sent_again(stage: Stage, state: str) -> None:
    """Also of an action that this ledger does not know was ever claimed: it may have been rewound."""
    action = stage.insert() if state == "forgotten" else stage.attempt(state, retry_in_ms=0)
    stage.late_acceptance(action)
    assert stage.claim()["ids"] == []
    assert stage.resolve(action, "late_acceptance", provider_id="late-1") == "applied"
    assert stage.state(action) == RECONCILED


def test_an_acceptance_that_waits_is_not_cancelled_away(stage: Stage) -> None:
    """The first attempt was accepted after all, the second had no effect, and meanwhile the agent asked to cancel."""
    action = stage.attempt("no_effect", retry_in_ms=0)
    token = stage.claim()["token"]
    assert stage.cancel(action) == "cancel_requested"
    stage.late_acceptance(action)
    assert stage.report(action, token, "no_effect", retry_in_ms=0) == "applied"
    assert stage.state(action) == RETRY
    assert stage.claim()["ids"] == []
    assert stage.resolve(action, "late_acceptance", provider_id="late-1") == "applied"


def test_an_acceptance_that_waits_is_neither_withdrawn_nor_expired_away(stage: Stage) -> None:
    action = stage.insert(deliver_by=in_one_hour(stage))
    stage.late_acceptance(action)
    assert stage.cancel(action) == "cancel_requested"
    stage.advance(3601)
    assert stage.one("select outbox.sweep_deadlines(10)", role="reconciler") == 0
    assert stage.resolve(action, "late_acceptance", provider_id="late-1") == "applied"


@pytest.mark.parametrize("second", ["refused", "accepted"])
def test_an_acceptance_that_waits_is_weighed_when_the_attempt_ends(stage: Stage, second: str) -> None:
    action = stage.attempt("no_effect", retry_in_ms=0)
    token = stage.claim()["token"]
    stage.late_acceptance(action, "id-1")
    assert stage.report(action, token, second, provider_id="id-2") == "applied"
    assert stage.facts(action)["duplicate_suspected"]
    assert stage.review_of(action)


def settled(stage: Stage, how: str):
    if how == "accepted":
        return stage.attempt("accepted", provider_id="id-1")
    if how == "refused":
        return stage.attempt("refused")
    if how == "cancelled":
        action = stage.insert()
        stage.cancel(action)
        return action
    action = stage.attempt("response_lost")
    if how == "failed":
        stage.resolve(action, "proven_absent")
    else:
        stage.decide(stage.ask(action), how)
    return action


@pytest.mark.parametrize("how", ["accepted", "refused", "cancelled", "failed", "abandoned"])
def test_evidence_against_a_settled_state_raises_suspicion_and_a_review(stage: Stage, how: str) -> None:
    action = settled(stage, how)
    state = stage.state(action)
    stage.late_acceptance(action, "id-9")
    facts = stage.facts(action)
    assert stage.state(action) == state
    assert facts["duplicate_suspected"]
    assert stage.review_of(action)
    stage.decide(stage.review_of(action), "noted")


def test_the_same_acceptance_twice_is_no_contradiction(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="id-1")
    stage.late_acceptance(action, "id-1")
    assert not stage.facts(action)["duplicate_suspected"]
    assert stage.state(action) == CONFIRMED


def test_a_decision_against_a_waiting_acceptance_raises_suspicion(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action)
    stage.late_acceptance(action, "id-9")
    stage.decide(review, "failed")
    assert stage.state(action) == FAILED
    assert stage.facts(action)["duplicate_suspected"]
    assert stage.review_of(action) != review


def test_an_operators_resend_waits_until_the_last_attempt_cannot_be_on_its_way(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    looked = stage.look()
    replay = "select * from outbox.begin_replay(%s, %s, 30000, 10000)"
    assert len(stage.rows("reconciler", replay, action, looked["token"])) == 1
    stage.one("select outbox.open_review(%s, 'x', 'x', 'x', 'x', 1000)", action)
    stage.decide(stage.review_of(action), "resend")
    assert stage.resolve(action, "replay_accepted", token=looked["token"], provider_id="id-1") == "stale"
    assert stage.claim()["ids"] == []
    stage.advance(41)
    assert stage.claim()["ids"] == [], "and what the replay learned stops it"
    assert stage.look()["cases"][0]["unused_acceptance"]["provider_id"] == "id-1"


def test_a_resend_is_refused_once_a_cancel_was_asked_for(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action)
    assert stage.cancel(action) == "cancel_requested"
    decide = "select outbox.decide_review(%s, %s, 'tested')"
    assert stage.refusal("operator", decide, review, "resend") == "OB002"
    assert stage.refusal("operator", decide, review, "failed") is None


def test_two_clicks_are_one_decision(stage: Stage) -> None:
    review = stage.ask(stage.attempt("response_lost"))
    stage.decide(review, "resend")
    assert stage.refusal("operator", "select outbox.decide_review(%s, 'resend', 'again')", review) == "OB009"


def test_a_claim_whose_commit_was_not_acknowledged_is_recognised(stage: Stage) -> None:
    for _ in range(12):
        stage.insert()
    token = uuid4()
    with stage.as_("relay").transaction():
        stage.claim(10, token=token)
    recall = "select * from outbox.recall_claims(%s)"
    known = stage.rows("relay", recall, token)
    assert len(known) == 10
    assert {row["claim_token"] for row in known} == {token}
    assert stage.rows("relay", recall, uuid4()) == []
    stage.claim()
    unknown = stage.expired()
    looked = stage.look()
    again = stage.rows("reconciler", "select outbox.recall_unknowns(%s) as unknown", looked["token"])
    assert [row["unknown"]["claim"]["action_id"] for row in again] == [str(unknown)] == list(map(str, looked["ids"]))


def test_a_recall_waits_for_the_lost_transaction_to_end(stage: Stage) -> None:
    stage.insert()
    token = uuid4()
    with stage.as_("relay").transaction(force_rollback=True):
        assert len(stage.claim(token=token)["ids"]) == 1
        other = Stage(stage.ledger)
        other.rows("relay", "set lock_timeout = '200ms'")
        assert other.refusal("relay", "select * from outbox.recall_claims(%s)", token) == "55P03", "it waits"
    assert stage.rows("relay", "select * from outbox.recall_claims(%s)", token) == []


def test_a_released_claim_leaves_no_trace_but_its_events(stage: Stage) -> None:
    names = ("attempt_count", "first_attempt_at", "last_attempt_at", "in_flight_until", "execution_state")
    for make in (stage.insert, lambda: stage.attempt("no_effect", retry_in_ms=0)):
        action = make()
        before, due = stage.facts(action), (stage.queued(action) or {})["due_at"]
        assert stage.report(action, stage.claim(1)["token"], "released") == "applied"
        after = stage.facts(action)
        changed = {name for name in names if before[name] != after[name]}
        assert changed <= {"last_attempt_at"} if before["attempt_count"] else not changed
        assert (stage.queued(action) or {})["due_at"] == due
        stage.cancel(action)


def test_retries_are_bounded_and_end_before_a_person(stage: Stage) -> None:
    stage.declare({"retry_limit": 2})
    action = stage.insert()
    for attempt in (1, 2, 3):
        assert stage.report(action, stage.claim()["token"], "no_effect", retry_in_ms=0) == "applied"
        assert stage.facts(action)["attempt_count"] == attempt
    assert stage.state(action).execution is ExecutionState.ON_HOLD
    review = stage.rows("owner", "select reason, owner from outbox.reviews where closed_at is null")
    assert review == [{"reason": "retries_exhausted", "owner": "mail-oncall"}]
    stage.decide(stage.review_of(action), "release")
    assert stage.report(action, stage.claim()["token"], "no_effect", retry_in_ms=0) == "applied"
    assert stage.state(action) == RETRY, "a released action has its retries back"


def test_retry_is_never_earlier_than_the_provider_asked(stage: Stage) -> None:
    action = stage.attempt("no_effect", retry_in_ms=3_600_000)
    stage.advance(3500)
    assert stage.claim()["ids"] == []
    stage.advance(3601)
    assert stage.claim()["ids"] == [action]


def test_one_stale_outcome_does_not_spoil_the_batch(stage: Stage) -> None:
    actions = [stage.insert() for _ in range(5)]
    token = stage.claim()["token"]
    tokens = [token, uuid4(), token, uuid4(), token]
    pairs = zip(actions, tokens, strict=True)
    batch = [{"action_id": a, "claim_token": t, "event": "accepted", "provider_id": "x"} for a, t in pairs]
    batch.append({"action_id": uuid4(), "claim_token": token, "event": "accepted", "provider_id": "lost"})
    verdicts = stage.report_all(batch)
    assert [verdicts[action] for action in actions] == ["applied", "stale", "applied", "stale", "applied"]
    orphan = "select used_at from outbox.evidence where provider_id = 'lost'"
    assert stage.rows("owner", orphan) == [{"used_at": None}], "a ledger that was rewound keeps what it is told"


def test_an_outcome_that_is_not_the_relays_is_refused(stage: Stage) -> None:
    action, token = stage.started()
    rows = json.dumps([{"action_id": action, "claim_token": token, "event": "found", "reason": "x"}], default=str)
    assert stage.refusal("relay", "select * from outbox.record_outcomes(%s)", rows) == "OB002"
    assert stage.state(action) == STARTED
