"""One condition at a time of the functions that change an action: what would go wrong if that one were missing."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest

from outbox_relay.states import STATES, DeliveryState, Event, ExecutionState, State
from tests.ledger.factories import Stage, in_one_hour, put_into
from tests.ledger.test_reconciliation_functions import postpone, replayed
from tests.ledger.test_transitions import arm, named

OTHERS = ({"provider": "early"}, {"account": "another"}, {"operation": "emit"})
"""Accounts that share two of three names with the usual one, and sort before it."""


def declare_others(stage: Stage, column: str) -> dict[str, UUID]:
    """An action of each account, whose declarations differ in this column; by the value that is its own."""
    # The others first, so that a join that loses a name meets one of them first.
    stage.declare(*[other | {column: "live"} for other in OTHERS])
    stage.declare(*[other | {column: "live"} for other in OTHERS], {column: "shadow" if column == "mode" else "0"})
    return {"own": stage.insert(), **{"-".join(other): stage.insert(**other) for other in OTHERS}}


def claim_everything(stage: Stage) -> dict[UUID, dict]:
    demand = [("mail", "default"), ("early", "default"), ("mail", "another")]
    return {
        row["action_id"]: row for provider, account in demand
        for row in stage.claim(provider=provider, account=account)["rows"]
    }  # fmt: skip


# -- Claims -----------------------------------------------------------------------------------------------------------


def test_a_claim_touches_only_what_it_took(stage: Stage) -> None:
    first, second = stage.insert(priority=0), stage.insert()
    assert stage.claim(1)["ids"] == [first]
    assert (stage.queued(second) or {})["claim_token"] is None
    assert stage.facts(second)["attempt_count"] == 0


def test_a_claim_remembers_of_each_action_where_it_came_from(stage: Stage) -> None:
    actions = [stage.attempt("no_effect", retry_in_ms=0), stage.insert(), stage.insert()]
    origins = [stage.state(action) for action in actions]
    late = stage.insert(not_before=in_one_hour(stage))
    stage.advance(3660)
    claimed = stage.claim()
    waited = {row["action_id"]: row["due_age_s"] for row in claimed["rows"]}
    assert min(waited[action] for action in actions) > 3600
    assert waited[late] < 120
    stage.report_all([{"action_id": a, "claim_token": claimed["token"], "event": "released"} for a in actions])
    assert [stage.state(action) for action in actions] == origins


def test_a_claim_fixes_what_its_own_account_declares(stage: Stage) -> None:
    actions = declare_others(stage, "contract_version")
    told = claim_everything(stage)
    versions = {name: told[action]["contract_version"] for name, action in actions.items()}
    assert versions == dict.fromkeys(actions, "live") | {"own": "0"}


def test_a_claim_takes_of_the_asked_account_only(stage: Stage) -> None:
    actions = declare_others(stage, "contract_version")
    assert set(stage.claim()["ids"]) == {actions["own"], actions["operation"]}
    assert stage.claim(account="another")["ids"] == [actions["account"]]
    assert stage.claim(provider="early")["ids"] == [actions["provider"]]


@pytest.mark.parametrize("other", [{"provider": "other"}, {"account": "other"}], ids=["provider", "account"])
def test_an_ordering_key_orders_within_its_account_only(stage: Stage, other: dict[str, str]) -> None:
    stage.declare({}, other)
    stage.insert(ordering_key="o", **other)
    assert stage.insert(ordering_key="o") in stage.claim()["ids"]


def test_only_a_hold_that_was_released_goes_out_from_an_account_on_hold(stage: Stage) -> None:
    stage.declare({"mode": "hold"})
    held = stage.attempt("held")
    stage.decide(stage.review_of(held), "release")
    fresh = stage.insert()
    claimed = stage.claim()
    modes = {row["action_id"]: row["mode"] for row in claimed["rows"]}
    assert modes == {held: "live", fresh: "hold"}
    stage.report(held, claimed["token"], "no_effect", retry_in_ms=0)
    stage.declare({"mode": "shadow"})
    assert [row["mode"] for row in stage.claim()["rows"]] == ["shadow"]


# -- Outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["accepted", "refused"])
def test_a_token_counts_for_its_own_action_alone(stage: Stage, event: str) -> None:
    (first, one), (second, two) = stage.started(), stage.started()
    before = stage.everything(second)
    assert stage.report(first, two, event, provider_id="x") == "stale"
    assert stage.state(first).execution is ExecutionState.DISPATCH_STARTED
    assert stage.everything(second) == before
    assert stage.report(first, one, event, provider_id="x") == "applied"


@pytest.mark.parametrize("event", ["accepted", "refused", "response_lost"])
def test_an_outcome_settles_no_other_action_that_was_started(stage: Stage, event: str) -> None:
    (first, token), (second, _) = stage.started(), stage.started()
    before = stage.everything(second)
    assert stage.report(first, token, event, provider_id="x") == "applied"
    assert stage.everything(second) == before


@pytest.mark.parametrize("event", ["accepted", "refused"])
def test_an_outcome_of_what_was_never_started_is_stale(stage: Stage, event: str) -> None:
    stage.started()
    action = stage.insert()
    assert stage.report(action, arm(stage, action), event, provider_id="x") == "stale"


def test_an_acceptance_under_a_reconcilers_token_is_kept(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    assert stage.report(action, stage.look()["token"], "accepted", provider_id="late") == "stale"
    assert stage.one("select count(*) from outbox.evidence where proves = 'acceptance' and used_at is null") == 1


def test_an_acceptance_in_time_is_no_evidence(stage: Stage) -> None:
    """Also while an earlier acceptance waits: what is recorded of this one is the action itself."""
    action = stage.attempt("no_effect", retry_in_ms=0)
    token = stage.claim()["token"]
    stage.late_acceptance(action, "id-1")
    evidence = {"kind": "response", "proves": "acceptance", "reason": "accepted", "provider_id": "id-1"}
    assert stage.report(action, token, "accepted", provider_id="id-1", evidence=evidence) == "applied"
    assert stage.one("select count(*) from outbox.evidence") == 1


def test_an_outcome_without_evidence_records_none(stage: Stage) -> None:
    stage.attempt("response_lost")
    assert stage.one("select count(*) from outbox.evidence") == 0


# -- Conclusions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", STATES, ids=named)
def test_a_conclusion_that_does_not_fit_is_stale_and_no_error(stage: Stage, origin: State) -> None:
    """An error would take the whole batch with it."""
    action = put_into(stage, origin)
    item = {"action_id": action, "claim_token": arm(stage, action), "reason": "test", "provider_id": "x"}
    for event in Event:
        rows = json.dumps([item | {"event": event}], default=str)
        assert stage.refusal("reconciler", "select outbox.record_resolutions(%s)", rows) is None, event


def test_a_refused_replay_is_never_sent_again(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    assert stage.resolve(action, "replay_refused", resend=True) == "applied"
    assert stage.state(action).delivery is DeliveryState.RECONCILED_FAILED


def unused(stage: Stage, action: UUID) -> list[str]:
    rows = stage.rows("owner", "select proves from outbox.evidence where action_id = %s and used_at is null", action)
    return [row["proves"] for row in rows]


DOUBT = {"kind": "no_response", "proves": "nothing", "reason": "timeout"}


@pytest.mark.parametrize(
    ("waiting", "concluded", "suspected"),
    [("id-1", "id-1", False), ("id-1", "id-2", True), ("id-1", None, False), (None, "id-1", False)],
)
def test_a_conclusion_uses_the_evidence_that_it_rests_on(
    stage: Stage, waiting: str | None, concluded: str | None, suspected: bool
) -> None:
    action, other = stage.attempt("response_lost", evidence=DOUBT), stage.attempt("response_lost")
    for each in (action, other):
        assert stage.report(each, uuid4(), "accepted", provider_id=waiting) == "stale"
    assert stage.resolve(action, "found", provider_id=concluded) == "applied"
    assert unused(stage, action) == ["nothing"]
    assert unused(stage, other) == ["acceptance"]
    assert stage.facts(action)["duplicate_suspected"] == suspected


def test_a_failure_against_an_acceptance_is_suspected(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    stage.late_acceptance(action)
    assert stage.resolve(action, "proven_absent", provider_id="late-1") == "applied"
    assert stage.facts(action)["duplicate_suspected"]


# -- Replays, cancels, decisions, sweeps ------------------------------------------------------------------------------


def test_a_replay_is_of_the_one_action_that_is_held(stage: Stage) -> None:
    given_back, held = stage.attempt("response_lost"), stage.attempt("response_lost")
    token = stage.look()["token"]
    assert postpone(stage, given_back, token) == "applied"
    assert replayed(stage, given_back, token) == []
    assert [row["action_id"] for row in replayed(stage, held, token)] == [held]
    assert [stage.facts(action)["attempt_count"] for action in (given_back, held)] == [1, 2]


def test_a_replay_is_in_the_mode_of_its_own_account(stage: Stage) -> None:
    action = declare_others(stage, "mode")["own"]
    assert stage.report(action, claim_everything(stage)[action]["claim_token"], "response_lost") == "applied"
    assert [row["mode"] for row in replayed(stage, action, stage.look()["token"])] == ["shadow"]


def test_a_replay_has_until_the_deadline(stage: Stage) -> None:
    action, token = stage.started(deliver_by=in_one_hour(stage))
    assert stage.report(action, token, "response_lost") == "applied"
    assert len(replayed(stage, action, stage.look()["token"])) == 1


def test_a_cancel_asks_for_no_other_action(stage: Stage) -> None:
    (first, _), (second, _) = stage.started(), stage.started()
    assert stage.cancel(first) == "cancel_requested"
    asked = [stage.facts(action)["cancel_requested_at"] is not None for action in (first, second)]
    assert asked == [True, False]


def test_a_cancel_withdraws_no_other_action(stage: Stage) -> None:
    stage.started()
    other, action = stage.insert(), stage.insert()
    before = stage.everything(other)
    assert stage.cancel(action) == "cancelled"
    assert stage.everything(other) == before


def test_a_decision_is_about_its_own_review_and_action(stage: Stage) -> None:
    cancelled, other = stage.attempt("response_lost"), stage.attempt("response_lost")
    token = stage.look()["token"]
    reviews = [stage.ask(action, token=token) for action in (cancelled, other)]
    assert stage.cancel(cancelled) == "cancel_requested"
    stage.decide(reviews[1], "resend")
    stage.attempt("response_lost")
    decide = "select outbox.decide_review(%s, 'failed', 'again')"
    assert stage.refusal("operator", decide, reviews[1]) == "OB009", "closed, while another one is open"
    assert stage.refusal("operator", decide, reviews[0]) is None


def test_a_sweep_takes_only_what_ran_out(stage: Stage) -> None:
    running, _ = stage.started()
    stage.expired()
    assert stage.state(running).execution is ExecutionState.DISPATCH_STARTED


def test_what_has_no_deadline_or_still_time_does_not_expire(stage: Stage) -> None:
    stage.insert()
    stage.insert(deliver_by=in_one_hour(stage))
    assert stage.one("select outbox.sweep_deadlines(10)", role="reconciler") == 0


def test_a_deadline_ends_no_unknown(stage: Stage) -> None:
    action, token = stage.started(deliver_by=in_one_hour(stage))
    assert stage.report(action, token, "response_lost") == "applied"
    stage.advance(3601)
    assert stage.one("select outbox.sweep_deadlines(10)", role="reconciler") == 0
    assert stage.state(action).delivery is DeliveryState.DELIVERY_UNKNOWN


# -- Notifications ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "expected"), [("off", []), ("on", [""])])
def test_a_session_notifies_of_events_only_and_only_when_asked(stage: Stage, setting: str, expected: list[str]) -> None:
    action = stage.insert()
    listener = stage.ledger.connect()
    listener.execute("listen outbox_changes")
    for role in ("relay", "owner"):
        stage.rows(role, "select set_config('outbox.notify', %s, false)", setting)
    stage.rows("owner", "update outbox.outbound_actions set last_error = null where action_id = %s", action)
    assert stage.claim()["ids"] == [action]
    stage.rows("owner", "select pg_notify('outbox_changes', 'last')")
    told: list[str] = []
    for notification in listener.notifies(timeout=30):
        if notification.payload == "last":
            break
        told.append(notification.payload)
    assert told == expected
