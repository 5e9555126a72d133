"""What the reconciler may take, replay, postpone and conclude, and what a person sees and decides."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest

from outbox_relay.states import DeliveryState, ExecutionState
from tests.ledger.factories import Row, Stage, in_one_hour

REPLAY = "select * from outbox.begin_replay(%s, %s, 30000, 10000)"
NEXT = "select outbox.next_unknown_in()"
EVIDENCE = {"kind": "lookup", "proves": "nothing", "reason": "http_500", "status": 500, "headers": {"a": "b"}}


def postpone(stage: Stage, action: UUID, token: UUID, **more: object) -> str:
    item = {"action_id": action, "claim_token": token, "delay_ms": 5000, "reason": "later"} | more
    statement = "select verdict from outbox.postpone_unknowns(%s)"
    verdict: str = stage.one(statement, json.dumps([item], default=str), role="reconciler")
    return verdict


def replayed(stage: Stage, action: UUID, token: UUID) -> list[Row]:
    return stage.rows("reconciler", REPLAY, action, token)


def test_a_case_holds_everything_a_decision_may_use(stage: Stage) -> None:
    evidence = {"kind": "no_response", "proves": "nothing", "reason": "timeout", "attempt": 1, "phase": "sent"}
    action = stage.attempt("response_lost", evidence=evidence)
    case = stage.look()["cases"][0]
    claim = case["claim"]
    assert (claim["action_id"], claim["attempt"], claim["wire_key"]) == (str(action), 1, claim["idempotency_key"])
    assert json.loads(claim["payload"]) == stage.facts(action)["payload"]
    assert [item["reason"] for item in case["evidence"]] == ["timeout"]
    assert case["unused_acceptance"] is None
    assert not case["cancel_requested"]
    assert case["in_flight_until"] <= case["now"], "the relay reported its socket closed"


def test_a_claim_that_ran_out_may_still_be_in_flight(stage: Stage) -> None:
    stage.expired()
    case = stage.look()["cases"][0]
    assert case["in_flight_until"] > case["unknown_since"], "nobody reported that its socket is closed"


def test_an_unknown_is_looked_at_by_one_reconciler_at_a_time(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    with stage.as_("reconciler").transaction():
        assert stage.look()["ids"] == [action]
        assert Stage(stage.ledger).look()["ids"] == []
    assert stage.look()["ids"] == []


def test_a_look_that_ran_out_is_given_back_and_counts_as_nothing(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    assert stage.look(lease_ms=0)["ids"] == [action]
    assert stage.sweep("reconciler") == 0
    assert stage.state(action).delivery is DeliveryState.DELIVERY_UNKNOWN
    assert stage.look()["ids"] == [action]


def test_when_to_look_again_is_told_exactly(stage: Stage) -> None:
    assert stage.one(NEXT, role="reconciler") is None
    action = stage.attempt("response_lost")
    assert stage.one(NEXT, role="reconciler") == 0
    assert postpone(stage, action, stage.look()["token"], delay_ms=60_000) == "applied"
    assert 50 < stage.one(NEXT, role="reconciler") <= 60
    stage.late_acceptance(action)
    assert stage.one(NEXT, role="reconciler") == 0


def test_a_postponed_unknown_waits_and_keeps_what_was_learned(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    assert postpone(stage, action, stage.look()["token"], spent_lookup=True, evidence=EVIDENCE) == "applied"
    assert stage.look()["ids"] == []
    stage.advance(6)
    case = stage.look()["cases"][0]
    assert (case["lookups"], case["evidence"][0]["headers"]) == (1, {"a": "b"})


def test_a_failed_lookup_spends_no_bound(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    postpone(stage, action, stage.look()["token"], spent_lookup=False)
    assert (stage.queued(action) or {})["lookups"] == 0


@pytest.mark.parametrize("call", ["resolve", "postpone", "ask"])
def test_a_stale_reconciler_changes_nothing_but_is_heard(stage: Stage, call: str) -> None:
    action = stage.attempt("response_lost")
    stage.look()
    before = stage.facts(action), stage.queued(action)
    token = uuid4()
    if call == "resolve":
        assert stage.resolve(action, "proven_absent", token=token, evidence=EVIDENCE) == "stale"
    elif call == "postpone":
        assert postpone(stage, action, token, evidence=EVIDENCE) == "stale"
    else:
        request = {"action_id": action, "claim_token": token, "reason": "x", "evidence": EVIDENCE, "due_in_ms": 1}
        statement = "select verdict from outbox.open_reviews(%s)"
        assert stage.one(statement, json.dumps([request], default=str), role="reconciler") == "stale"
    assert (stage.facts(action), stage.queued(action)) == before
    assert stage.one("select count(*) from outbox.evidence") == 1


@pytest.mark.parametrize("event", ["found", "replay_accepted", "receipt_arrived"])
def test_a_stale_reconcilers_acceptance_is_used_by_the_next(stage: Stage, event: str) -> None:
    action = stage.attempt("response_lost")
    assert stage.resolve(action, event, token=uuid4(), provider_id="id-3") == "stale"
    assert stage.look()["cases"][0]["unused_acceptance"]["provider_id"] == "id-3"


# -- Replays ----------------------------------------------------------------------------------------------------------


def test_a_replay_is_an_attempt_committed_before_it_is_sent(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    looked = stage.look()
    claim = replayed(stage, action, looked["token"])[0]
    first = looked["cases"][0]["claim"]
    same = ("wire_key", "payload", "base_url", "account_identity", "contract_version")
    assert {name: claim[name] for name in same} == {name: first[name] for name in same}
    assert claim["attempt"] == 2
    assert stage.facts(action)["attempt_count"] == 2
    kept = "select data::jsonb->>'event' as event, occurred_at from outbox.action_events order by sequence"
    told = stage.rows("owner", kept)
    assert told[-1]["event"] == "replay_started"
    assert told[-1]["occurred_at"] > told[-2]["occurred_at"]


def test_a_replay_that_nobody_reported_restarts_the_settle_time(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    before = stage.facts(action)["in_flight_until"]
    replayed(stage, action, stage.look()["token"])
    stage.advance(31)
    stage.sweep("reconciler")
    facts = stage.facts(action)
    assert stage.state(action).delivery is DeliveryState.DELIVERY_UNKNOWN
    assert (facts["in_flight_until"] - before).total_seconds() > 39, "lease and deadline of the replay"


def test_a_replay_that_was_answered_is_no_longer_in_flight(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    token = stage.look()["token"]
    replayed(stage, action, token)
    assert postpone(stage, action, token) == "applied"
    case_after = stage.facts(action)
    assert (case_after["in_flight_until"] - case_after["last_attempt_at"]).total_seconds() < 5


def test_no_replay_without_the_claim(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    assert replayed(stage, action, uuid4()) == [], "nobody's"
    assert stage.look()["ids"] == [action]
    assert replayed(stage, action, uuid4()) == [], "somebody else's"
    late = stage.attempt("response_lost")
    token = stage.look(lease_ms=0)["token"]
    assert replayed(stage, late, token) == [], "it ran out"
    assert {stage.facts(each)["attempt_count"] for each in (action, late)} == {1}


def test_no_replay_once_a_cancel_was_asked_for(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    token = stage.look()["token"]
    assert stage.cancel(action) == "cancel_requested"
    assert replayed(stage, action, token) == []


def test_no_replay_after_the_deadline(stage: Stage) -> None:
    action, token = stage.started(deliver_by=in_one_hour(stage))
    stage.report(action, token, "response_lost")
    stage.advance(3599)
    token = stage.look()["token"]
    stage.advance(3601)
    assert replayed(stage, action, token) == []


def test_no_replay_when_an_acceptance_arrived_meanwhile(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    token = stage.look()["token"]
    stage.late_acceptance(action)
    assert replayed(stage, action, token) == []
    assert stage.resolve(action, "late_acceptance", token=token, provider_id="late-1") == "applied"


def test_what_was_proven_absent_goes_out_again_under_the_same_key(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    before = stage.facts(action)
    assert stage.resolve(action, "proven_absent", resend=True) == "applied"
    claimed = stage.claim()["rows"][0]
    assert (claimed["action_id"], claimed["wire_key"], claimed["attempt"]) == (action, before["wire_key"], 2)
    assert stage.facts(action)["resend_count"] == 1
    assert stage.facts(action)["first_attempt_at"] == before["first_attempt_at"], "the window counts from the first"


def test_a_review_is_closed_when_the_unknown_resolves_by_itself(stage: Stage) -> None:
    for event, more in (("found", {"provider_id": "x"}), ("proven_absent", {"resend": True})):
        action = stage.attempt("response_lost")
        stage.ask(action, look_again_in_ms=0)
        assert stage.resolve(action, event, **more) == "applied"
        assert stage.review_of(action) is None
        stage.claim()


# -- Reviews ----------------------------------------------------------------------------------------------------------


def test_a_review_has_an_owner_a_due_time_and_is_opened_once(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action, owner="ada", look_again_in_ms=0)
    assert stage.ask(action, owner="grace") == review
    listed = stage.rows("operator", "select * from outbox.list_reviews()")
    assert [(row["review_id"], row["owner"], row["missing"]) for row in listed] == [(review, "ada", "an answer")]
    assert listed[0]["due_at"] > listed[0]["opened_at"]
    told = "select count(*) from outbox.action_events where type like '%review_opened%'"
    assert stage.one(told) == 1


def test_reviews_of_one_cause_are_one_incident(stage: Stage) -> None:
    first, second = (stage.ask(stage.attempt("response_lost")) for _ in range(2))
    other = stage.ask(stage.attempt("response_lost"), reason="other")
    incident = "select incident_id from outbox.reviews where review_id = %s"
    assert stage.one(incident, first) == stage.one(incident, second) != stage.one(incident, other)
    stage.decide(first, "failed")
    stage.decide(second, "failed")
    assert stage.one(incident, stage.ask(stage.attempt("response_lost"))) != stage.one(incident, first)


def test_nothing_is_tried_until_somebody_decides(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action)
    stage.advance(10 * 86_400)
    assert stage.look()["ids"] == []
    stage.decide(review, "resend")
    stage.advance(11 * 86_400)
    assert stage.claim()["ids"] == [action]


def test_a_decision_fences_the_resolver_and_names_who_decided(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action, look_again_in_ms=0)
    looked = stage.look()
    assert looked["cases"][0]["review_open"]
    stage.decide(review, "confirmed", "ref-1")
    assert replayed(stage, action, looked["token"]) == []
    assert stage.resolve(action, "proven_absent", token=looked["token"]) == "stale"
    facts = stage.facts(action)
    assert (facts["delivery_state"], facts["provider_id"], facts["resolution"]) == (
        "reconciled_confirmed", "ref-1", "operator",
    )  # fmt: skip
    decided = stage.rows("operator", "select decision, decided_by from outbox.list_reviews(false)")
    assert decided == [{"decision": "confirmed", "decided_by": "outbox_operator"}]
    statement = stage.rows("owner", "select excerpt, recorded_by from outbox.evidence where kind = 'statement'")
    assert statement == [{"excerpt": "tested", "recorded_by": "outbox_operator"}]


@pytest.mark.parametrize("reason", ["", "  ", None])
def test_a_decision_needs_a_reason(stage: Stage, reason: str | None) -> None:
    review = stage.ask(stage.attempt("response_lost"))
    assert stage.refusal("operator", "select outbox.decide_review(%s, 'failed', %s)", review, reason) == "OB011"


def test_a_deadline_expires_what_waits_and_nothing_else(stage: Stage) -> None:
    deadline = in_one_hour(stage)
    waits = stage.insert(deliver_by=deadline)
    stage.advance(3601)
    assert stage.one("select outbox.sweep_deadlines(10)", role="reconciler") == 1
    stage.advance(0)
    under_way, token = stage.started(deliver_by=in_one_hour(stage))
    stage.advance(3601)
    assert stage.one("select outbox.sweep_deadlines(10)", role="reconciler") == 0
    assert stage.state(waits).execution is ExecutionState.EXPIRED
    assert stage.report(under_way, token, "accepted", provider_id="x") == "applied"


def test_a_sweep_is_bounded(stage: Stage) -> None:
    for _ in range(5):
        stage.insert()
    stage.claim(lease_ms=0)
    swept = [stage.one("select outbox.sweep_expired_claims(2, 'relay')", role="relay") for _ in range(4)]
    assert swept == [2, 2, 1, 0]
    assert stage.refusal("relay", "select outbox.sweep_expired_claims(2, 'operator')") == "OB002"
