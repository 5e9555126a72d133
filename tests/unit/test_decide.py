"""Every branch of the decision about an unknown, as the table in docs/guarantees.md promises it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_relay.ledger.records import UnknownCase
from outbox_relay.providers.parts import Step
from outbox_relay.states import DeliveryState, Event, ExecutionState
from reconciler.decide import Decision, Lookup, Replay, Review, UseEvidence, WaitUntil, decide
from reconciler.terms import LookupTerms, NoTerms, Reason, ReplayTerms, Terms
from tests.unit.unknown_cases import (
    BLIND,
    CASE,
    CLAIM,
    HINT,
    KEYED,
    KEYED_THEN_LOOKUP,
    NOKEY,
    POLICY,
    QUERIED,
    WINDOW_S,
    after,
    evidence,
)

LATE = evidence("late_acceptance", "answered_after_lease", "acceptance")
RECEIPT = evidence("receipt", "delivered", "acceptance")
MISMATCH = evidence("replay", Reason.KEY_MISMATCH, "arrival")
REFUSED = evidence("replay", "replay_refused", "refusal")
STORED_500 = evidence("replay", "replayed_server_error")
EMPTY = evidence("lookup", "empty_not_proof")
EMPTY_EARLY = evidence("lookup", "empty_before_settled", at_s=20)
FAILED = evidence("lookup", "http_503")
WINDOW_END = WINDOW_S - POLICY.margin_s
SETTLED = 40 + 60 + 120


def test_replay_is_the_first_choice_where_the_contract_says_so() -> None:
    assert decide(CASE, KEYED, POLICY) == Replay(until=after(WINDOW_END))


def test_lookup_is_the_first_choice_where_the_contract_says_so() -> None:
    assert decide(CASE, NOKEY, POLICY) == Lookup(empty_is_proof=True)


# ---- An acceptance always wins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("execution", "delivery"),
    [
        (ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN),
        (ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING),
        (ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING),
    ],
)
@pytest.mark.parametrize("terms", [KEYED, NOKEY, BLIND, NoTerms(Reason.ACCOUNT_MISSING)])
def test_unused_acceptance_wins_from_every_state(
    execution: ExecutionState, delivery: DeliveryState, terms: Terms | NoTerms
) -> None:
    case = replace(
        CASE,
        execution_state=execution,
        delivery_state=delivery,
        unused_acceptance=LATE,
        cancel_requested=True,
        deliver_by=after(1),
        now=after(10 * WINDOW_S),
    )
    assert decide(case, terms, POLICY) == UseEvidence(Event.LATE_ACCEPTANCE, LATE)


def test_receipt_settles_under_its_own_name() -> None:
    case = replace(CASE, unused_acceptance=RECEIPT)
    assert decide(case, BLIND, POLICY) == UseEvidence(Event.RECEIPT_ARRIVED, RECEIPT)


def test_row_handed_out_for_evidence_that_is_gone_is_given_back() -> None:
    case = replace(CASE, execution_state=ExecutionState.RETRY_SCHEDULED, delivery_state=DeliveryState.DELIVERY_PENDING)
    decision = decide(case, KEYED, POLICY)
    assert isinstance(decision, WaitUntil)
    assert decision.reason is Reason.NOTHING_TO_RESOLVE


# ---- Replay: one row for each condition that must hold --------------------------------------------------------------

NO_REPLAY: list[tuple[str, UnknownCase, Terms, Reason]] = [
    ("account", CASE, replace(KEYED, account_identity="team_2"), Reason.ACCOUNT_CHANGED),
    ("url", CASE, replace(KEYED, base_url="https://eu.example.com"), Reason.BASE_URL_CHANGED),
    ("contract", CASE, replace(KEYED, contract_version="1+def"), Reason.CONTRACT_CHANGED),
    ("mode", CASE, replace(KEYED, live=False), Reason.ACCOUNT_NOT_LIVE),
    ("cancel", replace(CASE, cancel_requested=True), KEYED, Reason.CANCEL_REQUESTED),
    ("deadline", replace(CASE, deliver_by=CASE.now), KEYED, Reason.DEADLINE_PASSED),
    ("mismatch", replace(CASE, evidence=(MISMATCH,)), KEYED, Reason.KEY_MISMATCH),
    ("refused", replace(CASE, evidence=(REFUSED,)), KEYED, Reason.REPLAY_REFUSED),
    ("stored 500", replace(CASE, evidence=(STORED_500,)), KEYED, Reason.REPLAYED_SERVER_ERROR),
    ("bound", replace(CASE, replays=POLICY.replays_max), KEYED, Reason.REPLAYS_EXHAUSTED),
    ("window", replace(CASE, now=after(WINDOW_END)), KEYED, Reason.WINDOW_OVER),
    (
        "window unpublished",
        replace(CASE, now=after(700)),
        replace(KEYED, replay=ReplayTerms(window_s=600, published=False)),
        Reason.WINDOW_UNPUBLISHED,
    ),
    (
        "still in flight at the window's end",
        replace(CASE, in_flight_until=after(WINDOW_END)),
        KEYED,
        Reason.WINDOW_OVER,
    ),
    (
        "still in flight at the deadline",
        replace(CASE, in_flight_until=after(800), deliver_by=after(700)),
        KEYED,
        Reason.DEADLINE_PASSED,
    ),
]


@pytest.mark.parametrize(("case", "terms", "reason"), [row[1:] for row in NO_REPLAY], ids=[row[0] for row in NO_REPLAY])
def test_no_replay_without_each_of_its_conditions(case: UnknownCase, terms: Terms, reason: Reason) -> None:
    decision = decide(case, terms, POLICY)
    assert isinstance(decision, Review)
    assert decision.reason is reason
    assert decision.obstacles == (reason,)


@pytest.mark.parametrize(
    ("case", "terms", "_reason"), [row[1:] for row in NO_REPLAY], ids=[row[0] for row in NO_REPLAY]
)
def test_what_forbids_a_replay_does_not_forbid_to_look(case: UnknownCase, terms: Terms, _reason: Reason) -> None:
    """Except under another account or address, whose record would be somebody else's."""
    decision = decide(case, replace(terms, order=(Step.REPLAY, Step.LOOKUP), lookup=HINT), POLICY)
    if terms.account_identity != CLAIM.account_identity or terms.base_url != CLAIM.base_url:
        assert isinstance(decision, Review)
    else:
        assert decision == Lookup(empty_is_proof=False)


def test_replay_is_allowed_until_the_last_moment_of_its_window() -> None:
    assert isinstance(decide(replace(CASE, now=after(WINDOW_END - 0.001)), KEYED, POLICY), Replay)


def test_replay_may_not_be_sent_after_the_agents_deadline() -> None:
    assert decide(replace(CASE, deliver_by=after(900)), KEYED, POLICY) == Replay(until=after(900))


def test_replay_waits_until_nobody_is_in_flight() -> None:
    case = replace(CASE, now=after(20))
    assert decide(case, KEYED, POLICY) == WaitUntil(after(40), Reason.IN_FLIGHT)


def test_replay_does_not_wait_where_the_contract_makes_concurrent_ones_safe() -> None:
    terms = replace(KEYED, replay=ReplayTerms(window_s=WINDOW_S, published=True, concurrent_safe=True))
    assert isinstance(decide(replace(CASE, now=after(20)), terms, POLICY), Replay)


def test_window_counts_from_the_first_attempt_not_the_last() -> None:
    case = replace(CASE, now=after(WINDOW_END + 1), last_attempt_at=after(WINDOW_END - 100), in_flight_until=CASE.now)
    decision = decide(case, KEYED, POLICY)
    assert isinstance(decision, Review)
    assert decision.reason is Reason.WINDOW_OVER


# ---- Lookup ---------------------------------------------------------------------------------------------------------

LOOKS: list[tuple[str, UnknownCase, Terms, Decision]] = [
    ("first look is early", replace(CASE, now=after(15)), NOKEY, Lookup(empty_is_proof=False)),
    (
        "a moment before the settle time",
        replace(CASE, now=after(SETTLED - 0.001)),
        NOKEY,
        Lookup(empty_is_proof=False),
    ),
    ("at the settle time", replace(CASE, now=after(SETTLED)), NOKEY, Lookup(empty_is_proof=True)),
    (
        "early looks are few",
        replace(CASE, now=after(50), evidence=(EMPTY_EARLY,) * POLICY.early_lookups_max),
        NOKEY,
        WaitUntil(after(SETTLED), Reason.SETTLING),
    ),
    (
        "a replay does not wait for a record that is no proof",
        replace(CASE, now=after(50), evidence=(EMPTY_EARLY,) * POLICY.early_lookups_max),
        QUERIED,
        Replay(until=after(WINDOW_END)),
    ),
    (
        "settling, and no replay: wait",
        replace(CASE, now=after(50), evidence=(EMPTY_EARLY,) * POLICY.early_lookups_max, cancel_requested=True),
        QUERIED,
        WaitUntil(after(SETTLED), Reason.SETTLING),
    ),
    ("empty and no proof: next way", replace(CASE, evidence=(EMPTY,)), QUERIED, Replay(until=after(WINDOW_END))),
    (
        "empty, no proof, no other way: look again",
        replace(CASE, evidence=(EMPTY,), cancel_requested=True),
        QUERIED,
        Lookup(empty_is_proof=False),
    ),
    (
        "failing: next way",
        replace(CASE, evidence=(FAILED,) * POLICY.lookup_failures_max),
        replace(QUERIED, lookup=NOKEY.lookup),
        Replay(until=after(WINDOW_END)),
    ),
    (
        "failing and no other way: go on looking",
        replace(CASE, evidence=(FAILED,) * 50),
        NOKEY,
        Lookup(empty_is_proof=True),
    ),
    (
        "lookups before the last attempt do not count",
        replace(CASE, last_attempt_at=after(300), evidence=(EMPTY,) * 3),
        QUERIED,
        Lookup(empty_is_proof=False),
    ),
    (
        "replay is closed, so look",
        replace(CASE, now=after(WINDOW_END)),
        KEYED_THEN_LOOKUP,
        Lookup(empty_is_proof=True),
    ),
    (
        "a known key makes an empty answer worthless",
        replace(CASE, evidence=(MISMATCH,)),
        KEYED_THEN_LOOKUP,
        Lookup(empty_is_proof=False),
    ),
    (
        "another contract version may look for another mark",
        CASE,
        replace(NOKEY, contract_version="2+abc"),
        Lookup(empty_is_proof=False),
    ),
    (
        "a record that forgets is no proof after it forgot",
        replace(CASE, now=after(5000)),
        replace(NOKEY, lookup=LookupTerms(authoritative=True, lag_s=120, retention_s=5000)),
        Lookup(empty_is_proof=False),
    ),
]


@pytest.mark.parametrize(("case", "terms", "expected"), [row[1:] for row in LOOKS], ids=[row[0] for row in LOOKS])
def test_lookups_find_early_and_prove_absence_only_late(case: UnknownCase, terms: Terms, expected: Decision) -> None:
    assert decide(case, terms, POLICY) == expected


def test_settle_time_restarts_with_a_replay() -> None:
    """A replay is an attempt: what it may have caused can show up only after its own settle time."""
    case = replace(CASE, now=after(WINDOW_END), in_flight_until=after(WINDOW_END - 10), replays=3)
    assert decide(case, KEYED_THEN_LOOKUP, POLICY) == Lookup(empty_is_proof=False)


# ---- A person -------------------------------------------------------------------------------------------------------

REVIEWS: list[tuple[str, UnknownCase, Terms | NoTerms, Reason, bool]] = [
    ("type E", CASE, BLIND, Reason.NOTHING_TO_ASK, False),
    ("account gone", CASE, NoTerms(Reason.ACCOUNT_MISSING), Reason.ACCOUNT_MISSING, True),
    ("contract gone", CASE, NoTerms(Reason.CONTRACT_MISSING), Reason.CONTRACT_MISSING, True),
    ("operation gone", CASE, NoTerms(Reason.OPERATION_MISSING), Reason.OPERATION_MISSING, True),
    ("other account's record", CASE, replace(NOKEY, account_identity="x"), Reason.ACCOUNT_CHANGED, True),
    ("other address's record", CASE, replace(NOKEY, base_url="x"), Reason.BASE_URL_CHANGED, True),
    ("lookups used up", replace(CASE, lookups=POLICY.lookups_max), NOKEY, Reason.LOOKUPS_EXHAUSTED, False),
    (
        "lookups used up, never proof",
        replace(CASE, lookups=POLICY.lookups_max, cancel_requested=True),
        replace(QUERIED, order=(Step.LOOKUP,), replay=None),
        Reason.LOOKUP_NOT_PROOF,
        False,
    ),
    (
        "looked in vain after the deadline",
        replace(CASE, lookups=POLICY.lookups_max, deliver_by=after(1)),
        QUERIED,
        Reason.DEADLINE_PASSED,
        False,
    ),
    (
        "looked in vain for a known key",
        replace(CASE, lookups=POLICY.lookups_max, evidence=(MISMATCH,)),
        KEYED_THEN_LOOKUP,
        Reason.KEY_MISMATCH,
        False,
    ),
    (
        "looked in vain under another contract version",
        replace(CASE, lookups=POLICY.lookups_max),
        replace(NOKEY, contract_version="2+abc"),
        Reason.CONTRACT_CHANGED,
        True,
    ),
    (
        "replay in hold mode, and the record has not settled it",
        replace(CASE, lookups=POLICY.lookups_max),
        replace(QUERIED, live=False),
        Reason.ACCOUNT_NOT_LIVE,
        True,
    ),
    (
        "a contract that names what it does not declare",
        CASE,
        replace(BLIND, order=(Step.LOOKUP, Step.REPLAY)),
        Reason.NOTHING_TO_ASK,
        False,
    ),
    (
        "searched for long enough",
        replace(CASE, now=after(10 + POLICY.give_up_after_s)),
        NOKEY,
        Reason.UNRESOLVED_TOO_LONG,
        False,
    ),
]


@pytest.mark.parametrize(
    ("case", "terms", "reason", "look_again"), [row[1:] for row in REVIEWS], ids=[row[0] for row in REVIEWS]
)
def test_what_nothing_can_settle_goes_to_a_person(
    case: UnknownCase, terms: Terms | NoTerms, reason: Reason, look_again: bool
) -> None:
    decision = decide(case, terms, POLICY)
    assert isinstance(decision, Review)
    assert decision.reason is reason
    assert decision.look_again is look_again


def test_missing_configuration_is_not_looked_at_for_ever() -> None:
    case = replace(CASE, now=after(10 + POLICY.give_up_after_s))
    decision = decide(case, NoTerms(Reason.ACCOUNT_MISSING), POLICY)
    assert isinstance(decision, Review)
    assert not decision.look_again
