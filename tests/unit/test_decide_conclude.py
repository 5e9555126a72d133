"""What each answer to a lookup or a replay means, row by row as docs/guarantees.md tables it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from outbox_relay.attempt.classify import REDIRECTED, Classification, Finding
from outbox_relay.ledger.records import Evidence, Postponement, Resolution, ReviewRequest
from outbox_relay.states import Event
from reconciler.conclude import Absent, Found, Inconclusive, Setting, after_lookup, after_replay, conclude, wait
from reconciler.decide import Lookup, Replay, Review, UseEvidence, WaitUntil, decide
from reconciler.resolve import shows_trouble
from reconciler.terms import NoTerms, Policy, Reason, Terms
from tests.unit.unknown_cases import (
    BLIND,
    CASE,
    KEYED,
    KEYED_THEN_LOOKUP,
    NOKEY,
    POLICY,
    QUERIED,
    REPLAY,
    WINDOW_S,
    after,
    evidence,
)

LOOKED = evidence("lookup", "not_found")
ANSWERED = Evidence(kind="response", proves="nothing", reason="http_500", status=500)


def setting(terms: Terms | NoTerms = KEYED, **changes: object) -> Setting:
    return Setting(replace(CASE, **changes), terms, POLICY, spread=0.0)  # type: ignore[arg-type]


def answer(finding: Finding, *, reason: str = "http_200", status: int = 200, **more: object) -> Classification:
    return Classification(finding, reason, replace(ANSWERED, reason=reason, status=status), **more)  # type: ignore[arg-type]


# ---- Decisions that ask nobody --------------------------------------------------------------------------------------


def test_late_acceptance_confirms_with_its_reference() -> None:
    late = replace(evidence("late_acceptance", "http_200", "acceptance"), provider_id="em_1")
    told = conclude(setting(), UseEvidence(Event.LATE_ACCEPTANCE, late))
    assert isinstance(told, Resolution)
    assert (told.event, told.provider_id, told.evidence) == (Event.LATE_ACCEPTANCE, "em_1", None)


def test_wait_is_until_then_and_not_earlier() -> None:
    told = conclude(setting(), WaitUntil(CASE.now + timedelta(seconds=30), Reason.SETTLING))
    assert isinstance(told, Postponement)
    assert told.delay_s == 30
    assert not told.spent_lookup


def test_old_unknown_gets_an_owner_while_the_search_goes_on() -> None:
    told = conclude(setting(now=after(4000)), WaitUntil(after(4030), Reason.SETTLING))
    assert isinstance(told, ReviewRequest)
    assert told.reason == Reason.UNRESOLVED_TOO_LONG
    assert told.look_again_in_s == 30


@pytest.mark.parametrize(
    ("reason", "told_to"), [(Reason.PACED, Postponement), (Reason.PROVIDER_IN_TROUBLE, ReviewRequest)]
)
def test_after_our_own_absence_a_turn_that_comes_calls_nobody_but_a_provider_in_trouble_does(
    reason: Reason, told_to: type
) -> None:
    assert isinstance(wait(setting(now=after(72_000)), 2.0, reason), told_to)


def test_old_unknown_with_an_owner_is_only_postponed() -> None:
    told = conclude(setting(now=after(4000), review_open=True), WaitUntil(after(4030), Reason.SETTLING))
    assert isinstance(told, Postponement)


@pytest.mark.parametrize(("look_again", "expected"), [(True, POLICY.look_again_s), (False, None)])
def test_review_is_looked_at_again_only_where_a_fix_would_free_it(look_again: bool, expected: float | None) -> None:
    told = conclude(setting(), Review(Reason.ACCOUNT_CHANGED, (Reason.ACCOUNT_CHANGED,), look_again=look_again))
    assert isinstance(told, ReviewRequest)
    assert told.look_again_in_s == expected


# ---- Lookup ---------------------------------------------------------------------------------------------------------


def test_one_match_confirms() -> None:
    told = after_lookup(setting(NOKEY), Lookup(empty_is_proof=True), Found(("c_1",), 1, LOOKED))
    assert isinstance(told, Resolution)
    assert (told.event, told.provider_id, told.reason) == (Event.FOUND, "c_1", "found")
    assert told.evidence is not None
    assert told.evidence.proves == "acceptance"


def test_several_matches_confirm_and_say_that_they_are_several() -> None:
    told = after_lookup(setting(NOKEY), Lookup(empty_is_proof=True), Found(("c_1", "c_2"), 2, LOOKED))
    assert isinstance(told, Resolution)
    assert told.event is Event.FOUND
    assert told.evidence is not None
    assert told.evidence.reason == "multiple_matches"
    # The other one contradicts the one that is used, by which the ledger suspects a duplicate.
    assert (told.provider_id, told.evidence.provider_id) == ("c_1", "c_2")


def test_proven_absence_sends_again_under_the_same_key() -> None:
    told = after_lookup(setting(NOKEY), Lookup(empty_is_proof=True), Absent(LOOKED))
    assert isinstance(told, Resolution)
    assert (told.event, told.resend) == (Event.PROVEN_ABSENT, True)
    assert told.evidence is not None
    assert told.evidence.proves == "absence"


@pytest.mark.parametrize(
    "changes",
    [
        {"resends": POLICY.resends_max},
        {"cancel_requested": True},
        {"deliver_by": CASE.now},
    ],
    ids=["bound", "cancel", "deadline"],
)
def test_proven_absence_closes_when_it_may_not_be_sent_again(changes: dict[str, object]) -> None:
    told = after_lookup(setting(NOKEY, **changes), Lookup(empty_is_proof=True), Absent(LOOKED))
    assert isinstance(told, Resolution)
    assert (told.event, told.resend) == (Event.PROVEN_ABSENT, False)


def test_empty_answer_that_was_not_decided_to_be_proof_never_is() -> None:
    """Also when the settle time passed while the pages were read: the measure is when the lookup began."""
    told = after_lookup(setting(NOKEY), Lookup(empty_is_proof=False), Absent(LOOKED))
    assert isinstance(told, Postponement)
    assert told.evidence is not None
    assert told.evidence.proves == "nothing"


def test_empty_answer_before_the_settle_time_costs_no_bound_and_waits_no_longer_than_it() -> None:
    told = after_lookup(setting(NOKEY, now=after(218)), Lookup(empty_is_proof=False), Absent(LOOKED))
    assert isinstance(told, Postponement)
    assert not told.spent_lookup
    assert told.delay_s == 2


def test_empty_answer_that_is_no_proof_costs_one_of_the_bound() -> None:
    told = after_lookup(setting(QUERIED), Lookup(empty_is_proof=False), Absent(LOOKED))
    assert isinstance(told, Postponement)
    assert told.spent_lookup


def test_failed_lookup_costs_no_bound_and_waits_longer_each_time() -> None:
    waits = []
    for failures in range(4):
        items = (evidence("lookup", "http_503"),) * failures
        told = after_lookup(setting(NOKEY, now=after(11), evidence=items), Lookup(True), Inconclusive(LOOKED))
        assert isinstance(told, Postponement)
        assert not told.spent_lookup
        waits.append(told.delay_s)
    assert waits == sorted(set(waits))


def test_failed_lookup_waits_as_long_as_the_provider_asks() -> None:
    told = after_lookup(setting(NOKEY), Lookup(empty_is_proof=True), Inconclusive(LOOKED, retry_after_s=900))
    assert isinstance(told, Postponement)
    assert told.delay_s == 900


def test_outage_does_not_fill_the_evidence() -> None:
    items = (evidence("lookup", "http_503"),) * (POLICY.lookup_failures_max + 1)
    told = after_lookup(setting(NOKEY, evidence=items), Lookup(empty_is_proof=True), Inconclusive(LOOKED))
    assert isinstance(told, Postponement)
    assert told.evidence is None


# ---- Replay ---------------------------------------------------------------------------------------------------------


def test_accepted_replay_confirms_with_the_providers_reference() -> None:
    told = after_replay(setting(), answer(Finding.ACCEPTED, provider_id="em_9", replayed=True))
    assert isinstance(told, Resolution)
    assert (told.event, told.provider_id) == (Event.REPLAY_ACCEPTED, "em_9")
    assert told.evidence is not None
    assert (told.evidence.kind, told.evidence.proves) == ("replay", "acceptance")


def test_in_progress_waits_and_keeps_the_replay_open() -> None:
    told = after_replay(setting(), answer(Finding.IN_PROGRESS, reason="key_in_progress", status=409, retry_after_s=7))
    assert isinstance(told, Postponement)
    assert told.delay_s == 7
    assert told.evidence is not None
    assert isinstance(decide(replace(CASE, evidence=(told.evidence,), replays=1), KEYED, POLICY), Replay)


def test_in_progress_seen_by_the_relay_is_no_mismatch() -> None:
    terms = replace(KEYED, replay=replace(REPLAY, in_progress_reasons=frozenset({"key_in_progress"})))
    seen = evidence("response", "key_in_progress", "arrival")
    assert isinstance(decide(replace(CASE, evidence=(seen,)), terms, POLICY), Replay)


@pytest.mark.parametrize(("terms", "then"), [(KEYED, Review), (KEYED_THEN_LOOKUP, Lookup)])
def test_mismatch_is_evidence_of_arrival_never_a_failure(terms: Terms, then: type) -> None:
    told = after_replay(setting(terms), answer(Finding.MISMATCH, reason="key_reused", status=409))
    assert isinstance(told, Postponement)
    assert told.evidence is not None
    assert told.evidence.proves == "arrival"
    decision = decide(replace(CASE, evidence=(told.evidence,), replays=1), terms, POLICY)
    assert isinstance(decision, then)
    if isinstance(decision, Lookup):
        assert not decision.empty_is_proof


def test_refused_replay_proves_absence_only_where_the_contract_says_so() -> None:
    terms = replace(KEYED, replay=replace(REPLAY, refusal_proves_absence=True))
    told = after_replay(setting(terms), answer(Finding.REFUSED, status=422))
    assert isinstance(told, Resolution)
    assert told.event is Event.REPLAY_REFUSED


@pytest.mark.parametrize(("terms", "then"), [(KEYED, Review), (KEYED_THEN_LOOKUP, Lookup)])
def test_refused_replay_elsewhere_ends_replaying_and_settles_nothing(terms: Terms, then: type) -> None:
    told = after_replay(setting(terms), answer(Finding.REFUSED, status=422))
    assert isinstance(told, Postponement)
    assert told.evidence is not None
    assert isinstance(decide(replace(CASE, evidence=(told.evidence,), replays=1), terms, POLICY), then)


@pytest.mark.parametrize(("terms", "then"), [(KEYED, Review), (KEYED_THEN_LOOKUP, Lookup)])
def test_stored_server_error_is_seen_once_then_lookup_then_review(terms: Terms, then: type) -> None:
    seen = answer(Finding.UNKNOWN, reason="replayed_http_500", status=500, replayed=True)
    told = after_replay(setting(terms), seen)
    assert isinstance(told, Postponement)
    assert told.evidence is not None
    assert isinstance(decide(replace(CASE, evidence=(told.evidence,), replays=1), terms, POLICY), then)


@pytest.mark.parametrize(
    "seen",
    [
        answer(Finding.UNKNOWN, reason="http_503", status=503),
        answer(Finding.UNKNOWN, reason="connection_lost"),
        answer(Finding.NO_EFFECT, reason="throttled", status=429),
        answer(Finding.RELEASED, reason="lease_too_short"),
    ],
    ids=["503", "no answer", "throttled", "not sent"],
)
def test_no_trusted_answer_leaves_it_unknown_and_replayable(seen: Classification) -> None:
    told = after_replay(setting(), seen)
    assert isinstance(told, Postponement)
    assert told.evidence is not None
    assert isinstance(decide(replace(CASE, evidence=(told.evidence,), replays=1), KEYED, POLICY), Replay)


def test_replays_wait_longer_each_time() -> None:
    waits = []
    for replays in range(8):
        told = after_replay(setting(replays=replays), answer(Finding.UNKNOWN))
        assert isinstance(told, Postponement)
        waits.append(told.delay_s)
    assert waits == sorted(set(waits))


def test_a_last_replay_is_tried_inside_the_window() -> None:
    now = WINDOW_S - POLICY.margin_s - 100
    told = after_replay(setting(now=after(now), replays=20, review_open=True), answer(Finding.UNKNOWN))
    assert isinstance(told, Postponement)
    assert told.delay_s == 50


@pytest.mark.parametrize(
    "held",
    [
        answer(Finding.HELD, reason="credential_refused", status=401),
        answer(Finding.UNKNOWN, reason=REDIRECTED, status=307, pause_account=True),
    ],
)
def test_held_or_redirected_replay_asks_a_person_and_goes_on_after_the_repair(held: Classification) -> None:
    told = after_replay(setting(), held)
    assert isinstance(told, ReviewRequest)
    assert told.reason == Reason.REPLAY_HELD
    assert told.look_again_in_s is not None
    assert told.evidence is not None
    assert isinstance(decide(replace(CASE, evidence=(told.evidence,), replays=1), KEYED, POLICY), Replay)


@pytest.mark.parametrize("finding", list(Finding))
def test_every_finding_has_a_meaning_and_none_is_a_failure(finding: Finding) -> None:
    told = after_replay(setting(), answer(finding))
    if isinstance(told, Resolution):
        assert told.event is Event.REPLAY_ACCEPTED


def test_waits_are_spread() -> None:
    spread = Setting(CASE, BLIND, Policy(), spread=1.0)
    told = conclude(spread, WaitUntil(after(700), Reason.SETTLING))
    assert isinstance(told, Postponement)
    assert told.delay_s == 120


def test_a_stored_server_error_is_no_trouble_of_the_provider() -> None:
    fresh = answer(Finding.UNKNOWN, reason="http_500", status=500)
    assert shows_trouble(fresh)
    assert not shows_trouble(replace(fresh, replayed=True))
