"""What an answer means for an unknown: from a decision and what came of it to what the ledger is told.

Pure. Every replay answer has its own meaning; an empty lookup is absence only where the decision said it would be. No
answer here ever leads to a new key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from outbox_relay.attempt.classify import REDIRECTED, Classification, Finding
from outbox_relay.ledger.records import Evidence, Postponement, Resolution, ReviewRequest, UnknownCase
from outbox_relay.states import Event
from reconciler.decide import Lookup, Review, UseEvidence, WaitUntil
from reconciler.escalate import request_review
from reconciler.seen import Seen
from reconciler.settle import backoff_s, seconds_until, settles_at, spaced, window_left_s
from reconciler.terms import NoTerms, Policy, Reason, Terms

Conclusion = Resolution | Postponement | ReviewRequest


@dataclass(frozen=True, slots=True)
class Found:
    """The provider's record shows the action, once or (a duplicate) more often."""

    provider_ids: tuple[str, ...]
    """Empty when the record names no id."""
    matches: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Absent:
    """Every page was read, and none shows the action."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """The record could not be read to its end: this says nothing about the action."""

    evidence: Evidence
    retry_after_s: float | None = None


LookupAnswer = Found | Absent | Inconclusive


@dataclass(frozen=True, slots=True)
class Setting:
    """What every conclusion about one case needs."""

    case: UnknownCase
    terms: Terms | NoTerms
    policy: Policy
    spread: float
    """0 to 1, drawn by the caller: how much of the allowed spread a wait is lengthened by."""


_NOBODYS_TROUBLE = frozenset({Reason.NOTHING_TO_RESOLVE, Reason.PACED})
"""Waits that nobody can shorten or need know of; what waits for ever is given up with a review all the same."""


# ---- Decisions that ask nobody --------------------------------------------------------------------------------------


def conclude(setting: Setting, decision: UseEvidence | WaitUntil | Review) -> Conclusion:
    """What the ledger is told when the decision needs no provider."""
    match decision:
        case UseEvidence(event, evidence):
            return _resolution(setting, event, evidence.reason, provider_id=evidence.provider_id)
        case WaitUntil(until, reason):
            wait_s = seconds_until(until, setting.case.now)
            return wait(setting, spaced(wait_s, setting.policy, spread=setting.spread), reason)
        case Review(reason, _, look_again):
            again_s = spaced(setting.policy.look_again_s, setting.policy, spread=setting.spread) if look_again else None
            return review(setting, reason, look_again_in_s=again_s)


def wait(
    setting: Setting,
    delay_s: float,
    reason: Reason | str,
    *,
    evidence: Evidence | None = None,
    spent_lookup: bool = False,
) -> Conclusion:
    """Give the claim back and look again later; an old unknown gets an owner at the same time."""
    case, policy = setting.case, setting.policy
    age_s = (case.now - case.unknown_since).total_seconds()
    # Waiting must not become invisible: from a certain age on somebody is told, while the search goes on. Not of a turn
    # that comes by itself: after a long absence of ours every case is old, and each would have called a person.
    if age_s >= policy.review_after_s and not case.review_open and reason not in _NOBODYS_TROUBLE:
        return review(setting, Reason.UNRESOLVED_TOO_LONG, look_again_in_s=delay_s, evidence=evidence)
    return Postponement(
        action_id=case.claim.action_id,
        claim_token=case.claim.claim_token,
        delay_s=delay_s,
        reason=str(reason),
        spent_lookup=spent_lookup,
        evidence=evidence,
    )


def review(
    setting: Setting, reason: Reason, *, look_again_in_s: float | None, evidence: Evidence | None = None
) -> ReviewRequest:
    """Hand the case to a person."""
    return request_review(
        setting.case,
        setting.terms,
        setting.policy,
        reason=reason,
        look_again_in_s=look_again_in_s,
        evidence=evidence,
    )


def _resolution(
    setting: Setting,
    event: Event,
    reason: str,
    *,
    provider_id: str | None = None,
    evidence: Evidence | None = None,
    resend: bool = False,
) -> Resolution:
    claim = setting.case.claim
    return Resolution(
        action_id=claim.action_id,
        claim_token=claim.claim_token,
        event=event,
        reason=reason,
        resend=resend,
        provider_id=provider_id,
        evidence=evidence,
    )


# ---- After a lookup -------------------------------------------------------------------------------------------------


def after_lookup(setting: Setting, decision: Lookup, answer: LookupAnswer) -> Conclusion:
    """What the provider's record means. `decision` was made before the lookup began, and stays the measure."""
    match answer:
        case Found():
            return _after_find(setting, answer)
        case Absent(evidence):
            return _after_absence(setting, decision, evidence)
        case Inconclusive(evidence, retry_after_s):
            return _after_failed_lookup(setting, evidence, retry_after_s)


def _after_find(setting: Setting, found: Found) -> Conclusion:
    """There once is there. There twice is still there: confirmed by the first, and the other is the duplicate.

    The evidence then names the other one, an acceptance that contradicts the one that was used: the ledger flags the
    action and puts it before a person.
    """
    first = found.provider_ids[0] if found.provider_ids else None
    other = found.provider_ids[-1] if found.provider_ids else None
    reason = Seen.FOUND if found.matches == 1 else Seen.MULTIPLE_MATCHES
    seen = replace(found.evidence, kind="lookup", proves="acceptance", reason=reason, provider_id=other)
    return _resolution(setting, Event.FOUND, reason, provider_id=first, evidence=seen)


def _after_absence(setting: Setting, decision: Lookup, evidence: Evidence) -> Conclusion:
    case, terms, policy = setting.case, setting.terms, setting.policy
    if decision.empty_is_proof:
        proof = replace(evidence, kind="lookup", proves="absence", reason=Seen.EMPTY)
        return _resolution(setting, Event.PROVEN_ABSENT, Seen.EMPTY, evidence=proof, resend=_may_resend(case, policy))
    settled = isinstance(terms, Terms) and case.now >= settles_at(case, terms)
    # Too early to prove anything: costs no bound, because the next one, after the settle time, may be the proof.
    reason = Seen.EMPTY_NOT_PROOF if settled else Seen.EMPTY_BEFORE_SETTLED
    seen = replace(evidence, kind="lookup", proves="nothing", reason=reason)
    tries = sum(item.kind == "lookup" for item in case.evidence)
    delay_s = backoff_s(tries, policy, spread=setting.spread)
    if isinstance(terms, Terms) and not settled:
        # Not later than needed: at the settle time an empty answer starts to count.
        left_s = spaced(seconds_until(settles_at(case, terms), case.now), policy, spread=setting.spread)
        delay_s = min(delay_s, left_s)
    return wait(setting, delay_s, reason, evidence=seen, spent_lookup=settled)


def _may_resend(case: UnknownCase, policy: Policy) -> bool:
    """Proven absent: send again under the same key, a bounded number of times, while the agent still wants it."""
    in_time = case.deliver_by is None or case.now < case.deliver_by
    return in_time and not case.cancel_requested and case.resends < policy.resends_max


def _after_failed_lookup(setting: Setting, evidence: Evidence, retry_after_s: float | None) -> Conclusion:
    """Nothing was learned: no bound is spent, and the wait grows with each failure."""
    case, policy = setting.case, setting.policy
    failures = sum(item.kind == "lookup" for item in case.evidence)
    # In a long outage the age sets the pace, because failures are not all kept: a quarter of it, capped.
    age_s = min((case.now - case.unknown_since).total_seconds() / 4, policy.backoff_max_s)
    wait_s = max(backoff_s(failures, policy, spread=setting.spread), spaced(age_s, policy, spread=setting.spread))
    delay_s = max(_before_window_ends(setting, wait_s), retry_after_s or 0.0)
    # Each kind of failure is kept once in a row: an outage of hours must not fill the evidence.
    last = case.evidence[-1] if case.evidence else None
    repeated = last is not None and last.kind == "lookup" and failures > policy.lookup_failures_max
    seen = None if repeated else replace(evidence, kind="lookup", proves="nothing")
    return wait(setting, delay_s, Reason.LOOKUP_FAILING, evidence=seen)


# ---- After a replay -------------------------------------------------------------------------------------------------


def after_replay(setting: Setting, answer: Classification) -> Conclusion:
    """What the answer to a replay means. `setting.case` is the case before the replay; its count is one more now."""
    evidence = replace(answer.evidence, kind="replay", provider_id=answer.provider_id)
    return _MEANING[answer.finding](setting, answer, evidence)


def _replay_accepted(setting: Setting, answer: Classification, evidence: Evidence) -> Conclusion:
    """Accepted now, or the stored answer of an earlier attempt: either way there is one effect and its reference."""
    seen = replace(evidence, proves="acceptance")
    return _resolution(setting, Event.REPLAY_ACCEPTED, answer.reason, provider_id=answer.provider_id, evidence=seen)


def _replay_in_progress(setting: Setting, answer: Classification, evidence: Evidence) -> Conclusion:
    """An earlier request with this key is still being worked on: wait, same key. It may yet fail, so no arrival."""
    seen = replace(evidence, proves="nothing", reason=Reason.IN_PROGRESS)
    return wait(setting, _replay_delay_s(setting, answer), Reason.IN_PROGRESS, evidence=seen)


def _replay_mismatch(setting: Setting, _answer: Classification, evidence: Evidence) -> Conclusion:
    """The key is known with another body: evidence of an earlier arrival, never a failure, never a new key.

    With this evidence `decide` replays no more: it looks, then hands over.
    """
    seen = replace(evidence, proves="arrival", reason=Reason.KEY_MISMATCH)
    return wait(setting, setting.policy.backoff_first_s, Reason.KEY_MISMATCH, evidence=seen)


def _replay_refused(setting: Setting, answer: Classification, evidence: Evidence) -> Conclusion:
    """A refusal of the replay says something about the first attempt only where the contract says so."""
    terms = setting.terms
    if isinstance(terms, Terms) and terms.replay is not None and terms.replay.refusal_proves_absence:
        seen = replace(evidence, proves="absence", reason=Seen.REPLAY_REFUSED)
        return _resolution(setting, Event.REPLAY_REFUSED, answer.reason, evidence=seen)
    seen = replace(evidence, proves="refusal", reason=Seen.REPLAY_REFUSED)
    return wait(setting, setting.policy.backoff_first_s, Reason.REPLAY_REFUSED, evidence=seen)


def _replay_held(setting: Setting, answer: Classification, evidence: Evidence) -> Conclusion:
    """Nothing was done and a person must repair something; the replay stays possible while its window is open."""
    delay_s = max(_replay_delay_s(setting, answer), setting.policy.look_again_s)
    return review(setting, Reason.REPLAY_HELD, look_again_in_s=delay_s, evidence=replace(evidence, proves="nothing"))


def _replay_unanswered(setting: Setting, answer: Classification, evidence: Evidence) -> Conclusion:
    """No trusted answer (or a refusal to listen, such as 429): stays unknown, later again, same key.

    A stored server error is the exception: the provider would repeat it for the whole window, so it ends replaying.
    """
    if answer.reason == REDIRECTED:
        # No wait mends a wrong address: its owner must hear of it now, not when the action has become old.
        return _replay_held(setting, answer, evidence)
    stored = answer.replayed and answer.finding is Finding.UNKNOWN and (evidence.status or 0) >= 500
    reason = Seen.REPLAYED_SERVER_ERROR if stored else evidence.reason
    seen = replace(evidence, proves="nothing", reason=reason)
    delay_s = setting.policy.backoff_first_s if stored else _replay_delay_s(setting, answer)
    return wait(setting, delay_s, Reason.NO_ANSWER, evidence=seen)


def _replay_delay_s(setting: Setting, answer: Classification) -> float:
    wait_s = backoff_s(setting.case.replays, setting.policy, spread=setting.spread)
    return max(_before_window_ends(setting, wait_s), answer.retry_after_s or 0.0)


def _before_window_ends(setting: Setting, wait_s: float) -> float:
    """A wait that leaves another try while a replay is still safe: half of what is left, if that is shorter."""
    left_s = window_left_s(setting.case, setting.terms, setting.policy)
    # Never below the first step of the backoff, so that the tries stay few however little is left.
    return min(wait_s, max(left_s / 2, setting.policy.backoff_first_s)) if left_s else wait_s


_MEANING: dict[Finding, Callable[[Setting, Classification, Evidence], Conclusion]] = {
    Finding.ACCEPTED: _replay_accepted,
    Finding.IN_PROGRESS: _replay_in_progress,
    Finding.MISMATCH: _replay_mismatch,
    Finding.REFUSED: _replay_refused,
    Finding.HELD: _replay_held,
    Finding.NO_EFFECT: _replay_unanswered,
    Finding.RELEASED: _replay_unanswered,
    Finding.UNKNOWN: _replay_unanswered,
}
