"""Handing an unknown to a person: who owns it, by when, what is missing, and what would make going on safe.

Pure. The texts speak of the provider's record and the contract only: no payload, recipient or key is quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outbox_relay.ledger.records import Evidence, ReviewRequest, UnknownCase
from reconciler.settle import window_left_s
from reconciler.terms import NoTerms, Policy, Reason, Terms


@dataclass(frozen=True, slots=True)
class Advice:
    """What the person is told about one reason."""

    missing: str
    next_step: str


LOOK = (
    "search the provider's own record for this action by recipient and time; confirm with its reference if it is there"
)
SAFE_AGAIN = "Send again only after the provider's record has been seen not to hold it."

ADVICE: Mapping[Reason, Advice] = {
    Reason.ACCOUNT_MISSING: Advice(
        "the account that sent this is not in the providers file, so the provider cannot be asked",
        "put the account back into the providers file (it is looked up again by itself), or " + LOOK,
    ),
    Reason.CONTRACT_MISSING: Advice(
        "the provider's contract is not loaded, so the provider cannot be asked",
        "put the contract file back, or " + LOOK,
    ),
    Reason.OPERATION_MISSING: Advice(
        "the contract or the account no longer has this operation, so nothing says how to ask",
        "put the operation back into the contract and the account, or " + LOOK,
    ),
    Reason.ACCOUNT_CHANGED: Advice(
        "the configured account is not the one that sent this: its key and its record are kept elsewhere",
        "configure the sending account's identity again, or " + LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.BASE_URL_CHANGED: Advice(
        "the configured address is not the one this was sent to: its key may be unknown there",
        "configure the earlier base URL again, or " + LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.CONTRACT_CHANGED: Advice(
        "the contract was edited since this was sent: a replay could differ, and an empty lookup proves nothing",
        "load the contract version of the first attempt again, or " + LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.REQUEST_CHANGED: Advice(
        "the same action would be rendered to other bytes or another URL than the first attempt sent",
        "run the version that sent it, or " + LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.ACCOUNT_NOT_LIVE: Advice(
        "the account is not in live mode, so nothing may be sent, replays included",
        "set the account's mode to live while the key's window is open (it goes on by itself), or " + LOOK,
    ),
    Reason.CANCEL_REQUESTED: Advice(
        "a cancel was asked for while the outcome was unknown, and the provider's record has not settled it",
        LOOK + "; if it is there and unwanted, undo it at the provider",
    ),
    Reason.DEADLINE_PASSED: Advice(
        "the action's own deadline has passed, so it is not sent again, and the provider's record has not settled it",
        LOOK + "; else close it as not existing, or abandon it",
    ),
    Reason.KEY_MISMATCH: Advice(
        "the provider says that it knows this key with another body: an earlier request arrived, its result is unknown",
        LOOK + ". Do not send under a new key: the first request may have had its effect",
    ),
    Reason.REPLAY_REFUSED: Advice(
        "the provider refused the replay, and its contract does not say that nothing was accepted before",
        LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.REPLAYED_SERVER_ERROR: Advice(
        "the provider stored a server error under the key and gives it back; whether there was an effect is not known",
        LOOK + ", or ask the provider's support with the request's time. " + SAFE_AGAIN,
    ),
    Reason.REPLAY_HELD: Advice(
        "the replay met a cause in the configuration: refused credential, redirect (never followed), a check of ours",
        "repair the cause while the key's window is open (it goes on by itself), or " + LOOK,
    ),
    Reason.WINDOW_OVER: Advice(
        "the provider's promise to recognise the key has ended: the same request may have a second effect",
        LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.WINDOW_UNPUBLISHED: Advice(
        "the provider does not publish how long it recognises a key, and our small window for it is over",
        LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.REPLAYS_EXHAUSTED: Advice(
        "every allowed replay was made and none brought an answer that can be trusted",
        "see whether the provider works again, then decide to look again, or " + LOOK,
    ),
    Reason.LOOKUPS_EXHAUSTED: Advice(
        "the provider's record was read several times and neither showed the action nor proved its absence",
        LOOK + ". " + SAFE_AGAIN,
    ),
    Reason.LOOKUP_NOT_PROOF: Advice(
        "the provider's record does not show the action, but its contract does not call an empty answer proof",
        LOOK + ", or ask the recipient. " + SAFE_AGAIN,
    ),
    Reason.LOOKUP_WINDOW_OVER: Advice(
        "the provider keeps its record for a limited time, which is over: an empty answer proves nothing",
        "ask the recipient or the provider's support. " + SAFE_AGAIN,
    ),
    Reason.LOOKUP_FAILING: Advice(
        "the provider's record cannot be read",
        "see whether the provider works; the search goes on by itself meanwhile",
    ),
    Reason.UNRESOLVED_TOO_LONG: Advice(
        "nothing has settled this for longer than an unknown may stay unowned",
        "see whether the provider works; while its record or the key's window is open the search goes on by itself",
    ),
    Reason.NOTHING_TO_ASK: Advice(
        "the provider honours no key and has no record that can be searched: only the recipient can tell",
        "ask the recipient, then confirm, or send again knowing that it may arrive twice",
    ),
}

GENERAL = Advice("no evidence settles whether the provider accepted this", LOOK + ". " + SAFE_AGAIN)


def request_review(
    case: UnknownCase,
    terms: Terms | NoTerms,
    policy: Policy,
    *,
    reason: Reason,
    look_again_in_s: float | None,
    evidence: Evidence | None = None,
) -> ReviewRequest:
    """The review that hands this case to its owner; the action stays as it is."""
    advice = ADVICE.get(reason, GENERAL)
    return ReviewRequest(
        action_id=case.claim.action_id,
        claim_token=case.claim.claim_token,
        reason=str(reason),
        owner=owner_of(terms, policy),
        missing=advice.missing,
        next_step=advice.next_step,
        due_in_s=due_in_s(case, terms, policy),
        look_again_in_s=look_again_in_s,
        evidence=evidence,
    )


def owner_of(terms: Terms | NoTerms, policy: Policy) -> str:
    """The account's declared owner; a review without an owner does not exist."""
    return (terms.review_owner if isinstance(terms, Terms) else "") or policy.fallback_owner


def due_in_s(case: UnknownCase, terms: Terms | NoTerms, policy: Policy) -> float:
    """Seconds until somebody should have looked: earlier when a window in which a replay is safe ends earlier."""
    left_s = window_left_s(case, terms, policy)
    if not left_s:
        return policy.review_due_s
    before_s = max(left_s - policy.review_due_before_window_s, policy.review_due_least_s)
    return min(policy.review_due_s, before_s)
