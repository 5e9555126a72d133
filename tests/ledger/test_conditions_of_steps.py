"""One condition at a time of what the functions that take a step call: whose row, which evidence, and when."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from outbox_relay.states import DeliveryState, ExecutionState
from tests.ledger.arranging import falling_ids, lay_last, use_no_index
from tests.ledger.factories import Row, Stage
from tests.ledger.test_each_condition import declare_others, unused
from tests.ledger.test_lock_order import Meanwhile
from tests.ledger.test_reconciliation_functions import EVIDENCE, postpone, replayed

OWNER_OF = "select owner from outbox.reviews where action_id = %s and closed_at is null"
INCIDENT_OF = "select incident_id from outbox.reviews where review_id = %s"


# -- Reviews ----------------------------------------------------------------------------------------------------------


def test_a_review_is_of_its_own_account_and_touches_no_other(stage: Stage) -> None:
    declare_others(stage, "review_owner")
    action, other = stage.attempt("response_lost"), stage.attempt("response_lost")
    token = stage.look()["token"]
    stage.ask(other, token=token, look_again_in_ms=0, owner="ada")
    before = stage.everything(other)
    first = stage.ask(action, token=token, look_again_in_ms=0)
    assert stage.one(OWNER_OF, action) == "0"
    again = stage.ask(action, reason="still", look_again_in_ms=0)
    assert again == first
    assert stage.one("select reason from outbox.reviews where review_id = %s", first) == "still"
    assert {table: rows for table, rows in stage.everything(other).items() if table != "work_queue"} == {
        table: rows for table, rows in before.items() if table != "work_queue"
    }


def test_a_closed_review_stays_as_it_was_and_a_new_one_is_opened(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    other = stage.attempt("response_lost")
    token = stage.look()["token"]
    first, of_other = stage.ask(action, token=token), stage.ask(other, token=token)
    stage.decide(first, "resend")
    closed = stage.rows("owner", "select * from outbox.reviews where review_id = %s", first)
    assert stage.report(action, stage.claim()["token"], "response_lost") == "applied"
    second = stage.ask(action, reason="again")
    assert second != first
    stage.decide(second, "failed")
    assert stage.rows("owner", "select * from outbox.reviews where review_id = %s", first) == closed
    assert stage.review_of(other) == of_other


def test_a_review_joins_the_newest_incident_of_its_cause(stage: Stage) -> None:
    def ask(reason: str) -> int:
        return stage.ask(stage.attempt("response_lost"), reason=reason)

    old = ask("one")
    elsewhere = ask("two")
    stage.decide(old, "failed")
    newer = ask("one")
    newest = ask("one")
    incidents = [stage.one(INCIDENT_OF, review) for review in (old, elsewhere, newer, newest)]
    assert incidents[2] == incidents[3]
    assert len(set(incidents)) == 3


def test_a_decision_is_about_its_own_queue_row_and_says_who_resolved_it(stage: Stage) -> None:
    waiting = stage.insert(not_before="2999-01-01")
    before = stage.everything(waiting)
    failed, again = stage.attempt("response_lost"), stage.attempt("response_lost")
    token = stage.look()["token"]
    for action, decision in ((failed, "failed"), (again, "resend")):
        stage.decide(stage.ask(action, token=token), decision)
    assert [stage.facts(action)["resolution"] for action in (failed, again)] == ["operator", None]
    assert [stage.queued(action) is not None for action in (failed, again)] == [False, True]
    assert stage.everything(waiting) == before


def test_a_release_is_of_the_one_action_that_was_decided_on(stage: Stage) -> None:
    held, other = stage.attempt("held"), stage.attempt("held")
    before = stage.everything(other)
    stage.decide(stage.review_of(held), "release")
    assert stage.state(held).execution is ExecutionState.RETRY_SCHEDULED
    assert stage.everything(other) == before


# -- Batches ----------------------------------------------------------------------------------------------------------

BATCHES: dict[str, tuple[str, Row]] = {
    "record_outcomes": ("relay", {"event": "refused"}),
    "record_resolutions": ("reconciler", {"event": "found", "provider_id": "x"}),
    "postpone_unknowns": ("reconciler", {"delay_ms": 0, "spent_lookup": True}),
    "open_reviews": ("reconciler", {"missing": "x", "next_step": "y", "due_in_ms": 1}),
}
AFTER = {
    "record_outcomes": ("dispatch_finished", "delivery_rejected"),
    "record_resolutions": ("dispatch_finished", "reconciled_confirmed"),
}


@pytest.mark.parametrize("function", BATCHES)
def test_a_batch_is_answered_in_order_of_its_actions_and_of_each(stage: Stage, function: str) -> None:
    role, values = BATCHES[function]
    low, middle, high = falling_ids(stage, 3)
    token = stage.claim()["token"]
    if role == "reconciler":
        for action, event in ((low, "response_lost"), (high, "no_effect"), (middle, "response_lost")):
            stage.report(action, token, event, retry_in_ms=0)
        stage.late_acceptance(high)
        token = stage.look()["token"]
    batch = [{"action_id": action, "claim_token": token, "reason": "r", **values} for action in (high, low)]
    batch.append({"action_id": uuid4(), "claim_token": token, "reason": "r", **values})
    before = {action: stage.state(action) for action in (high, low)}
    untouched = stage.everything(middle)
    statement = f"select * from outbox.{function}(%s)".encode()
    told = stage.as_(role).execute(statement, [json.dumps(batch, default=str)]).fetchall()
    after = {action: AFTER.get(function, tuple(before[action])) for action in (low, high)}
    assert [(row["action_id"], row["verdict"]) for row in told[:2]] == [(low, "applied"), (high, "applied")]
    assert {row["action_id"]: (row["execution_state"], row["delivery_state"]) for row in told[:2]} == after
    assert (told[2]["verdict"], told[2]["execution_state"]) == ("stale", None)
    assert stage.everything(middle) == untouched


@pytest.mark.parametrize("with_a_stale_one", [False, True])
def test_acceptances_of_several_claims_are_told_apart(stage: Stage, with_a_stale_one: bool) -> None:
    ids = falling_ids(stage, 3)
    use_no_index(stage, "relay")
    token_of = {claimed["ids"][0]: claimed["token"] for claimed in (stage.claim(1) for _ in ids)}
    for action in reversed(ids):
        lay_last(stage, "work_queue", f"action_id = '{action}'")
    batch = [
        {"action_id": a, "claim_token": token_of[a], "event": "accepted", "provider_id": "x"} for a in reversed(ids)
    ]
    batch += [{"action_id": UUID(int=9), "claim_token": uuid4(), "event": "refused"}] * with_a_stale_one
    rows = json.dumps(batch, default=str)
    told = stage.rows("relay", "select action_id, verdict from outbox.record_outcomes(%s)", rows)
    expected = [(action, "applied") for action in ids] + [(UUID(int=9), "stale")] * with_a_stale_one
    assert [(row["action_id"], row["verdict"]) for row in told] == expected


@pytest.mark.parametrize("call", ["postpone", "ask", "resolve"])
def test_a_look_counts_for_what_it_still_holds_and_its_evidence_is_kept(stage: Stage, call: str) -> None:
    given_back, held = stage.attempt("response_lost"), stage.attempt("response_lost")
    token = stage.look()["token"]
    assert postpone(stage, given_back, token, spent_lookup=False) == "applied"
    before = stage.facts(given_back), stage.queued(given_back)
    item = {"claim_token": token, "reason": "x", "event": "proven_absent", "delay_ms": 1, "due_in_ms": 1}
    functions = {"postpone": "postpone_unknowns", "ask": "open_reviews", "resolve": "record_resolutions"}
    statement = f"select verdict from outbox.{functions[call]}(%s)".encode()
    for action, verdict in ((given_back, "stale"), (held, "applied")):
        batch = [item | {"action_id": action, "missing": "x", "next_step": "x", "evidence": EVIDENCE}]
        answer = stage.as_("reconciler").execute(statement, [json.dumps(batch, default=str)]).fetchone()
        assert answer == {"verdict": verdict}
        assert unused(stage, action) == ["nothing"]
    assert (stage.facts(given_back), stage.queued(given_back)) == before


def test_a_lookup_is_counted_where_it_was_spent(stage: Stage) -> None:
    first, second, third = (stage.attempt("response_lost") for _ in range(3))
    token = stage.look()["token"]
    assert postpone(stage, first, token, spent_lookup=True) == "applied"
    assert postpone(stage, second, token, spent_lookup=False) == "applied"
    assert [(stage.queued(action) or {})["lookups"] for action in (first, second, third)] == [1, 0, 0]


def test_only_a_replay_of_ones_own_lands(stage: Stage) -> None:
    expired, other = stage.expired(), stage.expired()
    before = {action: stage.facts(action)["in_flight_until"] for action in (expired, other)}
    token = stage.look()["token"]
    assert postpone(stage, expired, token) == "applied"
    assert stage.facts(expired)["in_flight_until"] == before[expired], "nobody reported that its socket is closed"
    under_way, _ = stage.started()
    action = stage.attempt("response_lost")
    lay_last(stage, "outbound_actions", f"action_id <> '{under_way}'")
    token = stage.look()["token"]
    queued = stage.queued(other)
    assert len(replayed(stage, action, token)) == 1
    assert stage.queued(other) == queued
    assert postpone(stage, action, token) == "applied"
    facts = stage.facts(action)
    assert facts["in_flight_until"] < facts["last_attempt_at"] + timedelta(seconds=30)
    assert stage.facts(other)["in_flight_until"] == before[other]
    held, _ = stage.started()
    flying = stage.facts(held)["in_flight_until"]
    row = "select outbox.land_replay(jsonb_populate_record(q, %s)) from outbox.work_queue q where action_id = %s"
    stage.rows("owner", row, json.dumps({"in_flight_before": "2001-01-01", "kind": "dispatch"}), held)
    assert stage.facts(held)["in_flight_until"] == flying, "a dispatch lands with its outcome"


def test_a_batch_waits_for_the_lowest_of_its_rows_first(stage: Stage) -> None:
    low, high = falling_ids(stage, 2)
    batch = json.dumps([{"action_id": str(high)}, {"action_id": str(low)}])
    with stage.owner.transaction():
        stage.rows("owner", "select 1 from outbox.work_queue where action_id = %s for update", low)
        other = Meanwhile(stage, "reconciler", lambda s: s.rows("owner", "select outbox.lock_queue(%s)::text", batch))
        other.pid = other.other.as_("owner").info.backend_pid
        other.waits()
        free = "select 1 from outbox.work_queue where action_id = %s for update nowait"
        assert Stage(stage.ledger).refusal("owner", free, high) is None
    assert other.done() == [{"lock_queue": ""}]


# -- What had no effect -----------------------------------------------------------------------------------------------


def test_a_limit_of_retries_is_of_ones_own_account_and_action(stage: Stage) -> None:
    others = [{"provider": "early"}, {"account": "another"}, {"operation": "emit"}]
    stage.declare(*[other | {"retry_limit": 0} for other in others])
    stage.declare(*[other | {"retry_limit": 0} for other in others], {"retry_limit": 1})
    stage.insert(not_before="2999-01-01")
    action = stage.insert()
    assert stage.report(action, stage.claim()["token"], "no_effect", retry_in_ms=0) == "applied"
    facts = stage.facts(action)
    assert facts["execution_state"] == ExecutionState.RETRY_SCHEDULED
    assert facts["attempt_count"] == 1
    assert facts["last_attempt_at"] is not None
    assert stage.review_of(action) is None
    assert stage.report(action, stage.claim()["token"], "released") == "applied"
    assert stage.facts(action)["last_attempt_at"] is not None, "the first attempt was made"
    assert stage.report(action, stage.claim()["token"], "no_effect", retry_in_ms=0) == "applied"
    assert stage.state(action).execution is ExecutionState.ON_HOLD
    reason = "select reason from outbox.reviews where action_id = %s"
    assert stage.one(reason, action) == "retries_exhausted"
    assert (stage.queued(action) or {})["due_at"] == "infinity"


def test_a_hold_is_for_its_own_reason_and_moves_nothing_else(stage: Stage) -> None:
    (action, token), (other, _) = stage.started(), stage.started()
    before = stage.everything(other)
    assert stage.report(action, token, "held", reason="no_credential") == "applied"
    assert stage.state(action).execution is ExecutionState.ON_HOLD
    assert stage.one("select reason from outbox.reviews where action_id = %s", action) == "no_credential"
    assert stage.facts(action)["attempt_count"] == 0
    queued = stage.queued(action) or {}
    assert (queued["kind"], queued["due_at"]) == ("hold", "infinity")
    assert stage.everything(other) == before
    due = "2001-01-01"
    waited, token = stage.started(not_before=due)
    assert stage.report(waited, token, "released") == "applied"
    assert (stage.queued(waited) or {})["due_at"].startswith(due)


CONCLUSIONS = {
    "found": "lookup",
    "replay_accepted": "replay",
    "receipt_arrived": "receipt",
    "late_acceptance": "response",
    "proven_absent": "lookup",
    "replay_refused": "replay",
}


def test_a_conclusion_says_how_it_was_reached(stage: Stage) -> None:
    for event, resolution in CONCLUSIONS.items():
        action = stage.attempt("response_lost")
        assert stage.resolve(action, event, evidence=EVIDENCE) == "applied"
        facts = stage.facts(action)
        assert (facts["resolution"], facts["resend_count"], facts["retries_from"]) == (resolution, 0, 0), event
        assert unused(stage, action) == ["nothing"]
    again = stage.attempt("response_lost")
    assert stage.resolve(again, "proven_absent", resend=True) == "applied"
    facts = stage.facts(again)
    assert (facts["resolution"], facts["resend_count"], facts["retries_from"]) == (None, 1, 1)
    assert stage.state(again).delivery is DeliveryState.DELIVERY_PENDING


def test_an_event_moves_the_time_of_the_last_change_and_nothing_else_does(stage: Stage) -> None:
    action = stage.insert()
    created = stage.facts(action)["updated_at"]
    assert stage.claim()["ids"] == [action]
    claimed = stage.facts(action)["updated_at"]
    assert claimed > created
    stage.rows("owner", "update outbox.outbound_actions set last_error = 'x'")
    assert stage.facts(action)["updated_at"] == claimed
