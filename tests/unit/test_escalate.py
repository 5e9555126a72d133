"""A review names an owner, a due time, what is missing and what would make going on safe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.decide import Closed, Review, decide
from reconciler.escalate import ADVICE, SAFE_AGAIN, due_in_s, owner_of, request_review
from reconciler.terms import NoTerms, Reason
from tests.unit.unknown_cases import BLIND, CASE, CLAIM, KEYED, POLICY, WINDOW_S, after

WAITING = {
    Reason.IN_FLIGHT,
    Reason.SETTLING,
    Reason.IN_PROGRESS,
    Reason.NO_ANSWER,
    Reason.PACED,
    Reason.PROVIDER_IN_TROUBLE,
}
"""Reasons to wait, which never reach a person under their own name."""


@pytest.mark.parametrize("reason", sorted(set(Reason) - WAITING - {Reason.NOTHING_TO_RESOLVE}))
def test_every_reason_says_what_is_missing_and_what_to_do(reason: Reason) -> None:
    advice = ADVICE[reason]
    assert advice.missing
    assert advice.next_step


@pytest.mark.parametrize("reason", [Reason.WINDOW_OVER, Reason.REPLAY_REFUSED, Reason.CONTRACT_CHANGED])
def test_advice_says_when_sending_again_is_safe(reason: Reason) -> None:
    assert SAFE_AGAIN in ADVICE[reason].next_step


def test_mismatch_never_advises_a_new_key() -> None:
    assert "Do not send under a new key" in ADVICE[Reason.KEY_MISMATCH].next_step


def test_review_belongs_to_the_accounts_declared_owner() -> None:
    request = request_review(CASE, KEYED, POLICY, reason=Reason.WINDOW_OVER, look_again_in_s=None)
    assert request.owner == "mail-team"
    assert (request.action_id, request.claim_token) == (CLAIM.action_id, CLAIM.claim_token)


@pytest.mark.parametrize("terms", [NoTerms(Reason.ACCOUNT_MISSING), replace(KEYED, review_owner="")])
def test_review_without_a_declared_owner_still_has_one(terms: object) -> None:
    assert owner_of(terms, POLICY) == POLICY.fallback_owner  # type: ignore[arg-type]


def test_review_is_due_before_the_replay_window_ends() -> None:
    case = replace(CASE, now=after(WINDOW_S - 2 * 3600))
    due = due_in_s(case, KEYED, POLICY)
    assert 0 < due < 2 * 3600 - POLICY.review_due_before_window_s + 1


def test_review_leaves_time_to_look_however_little_window_is_left() -> None:
    case = replace(CASE, now=after(WINDOW_S - POLICY.margin_s - 60))
    assert due_in_s(case, KEYED, POLICY) == POLICY.review_due_least_s


@pytest.mark.parametrize("terms", [BLIND, NoTerms(Reason.CONTRACT_MISSING)])
def test_review_without_a_window_is_due_in_the_usual_time(terms: object) -> None:
    assert due_in_s(CASE, terms, POLICY) == POLICY.review_due_s  # type: ignore[arg-type]


def test_review_after_the_window_is_due_in_the_usual_time() -> None:
    assert due_in_s(replace(CASE, now=after(WINDOW_S)), KEYED, POLICY) == POLICY.review_due_s


def test_review_quotes_nothing_of_the_action() -> None:
    private = replace(CASE, claim=replace(CLAIM, payload='{"secret-body":1}', recipient="someone@example.com"))
    for reason in ADVICE:
        request = request_review(private, KEYED, POLICY, reason=reason, look_again_in_s=None)
        text = request.missing + request.next_step
        assert "secret-body" not in text
        assert "someone@example.com" not in text
        assert private.claim.wire_key not in text


def test_a_closed_way_is_not_yet_a_review() -> None:
    """Only when no way is open, now or later, is a person asked."""
    assert isinstance(decide(CASE, BLIND, POLICY), Review)
    assert Closed(Reason.WINDOW_OVER).later is None
