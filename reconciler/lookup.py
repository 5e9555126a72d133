"""Asks the provider for its own record of one action, page after page.

Only a record that was read to its end can say that the action is not there; everything short of that is inconclusive.
Sends nothing but the contract's lookup, under the claim's lease, and never concludes anything by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outbox_relay.attempt.attempt import look_up
from outbox_relay.attempt.classify_lookup import LookupAnswer as Page
from outbox_relay.attempt.classify_lookup import LookupFinding
from outbox_relay.attempt.lease import Lease
from outbox_relay.attempt.request import CannotRender
from outbox_relay.attempt.send import Sender
from outbox_relay.ledger.records import Claim, Evidence
from outbox_relay.providers.accounts import Account
from reconciler.conclude import Absent, Found, Inconclusive, LookupAnswer

PAGES_MAX = 50
"""Pages that are read of a record whose contract names no bound of its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """One lookup under one claim."""

    claim: Claim
    account: Account
    lease: Lease
    deadline_s: float
    """For each page."""


async def look(question: Question, sender: Sender) -> LookupAnswer:
    """Read pages until the action is found, the record ends, or nothing more can be learned now."""
    bound = _pages_max(question)
    seen: set[str] = set()
    page: str | None = None
    for _ in range(bound):
        try:
            answer = await _ask(question, sender, page)
        except CannotRender as error:
            return Inconclusive(_not_asked(question.claim, error.reason))
        match answer.finding:
            case LookupFinding.FOUND:
                several = max(len(answer.provider_ids), 2) if answer.reason != "found" else 1
                return Found(answer.provider_ids, several, answer.evidence)
            case LookupFinding.ABSENT:
                return Absent(answer.evidence)
            case LookupFinding.INCONCLUSIVE:
                return Inconclusive(answer.evidence, answer.retry_after_s)
            case LookupFinding.MORE:
                page = answer.next_page
        # A record that leads back to a page already read has no end that could be proof.
        if page is None or page in seen:
            return Inconclusive(replace(answer.evidence, reason="pages_repeat", proves="nothing"))
        seen.add(page)
    return Inconclusive(_not_asked(question.claim, "too_many_pages"))


async def _ask(question: Question, sender: Sender, page: str | None) -> Page:
    account = question.account
    return await look_up(
        question.claim,
        account.contract,
        account,
        sender,
        question.lease,
        deadline_s=question.deadline_s,
        page=page,
    )


def _pages_max(question: Question) -> int:
    operation = question.account.contract.operations.get(question.claim.operation)
    paging = operation.lookup.paging if operation and operation.lookup else None
    return paging.max_pages if paging else PAGES_MAX


def _not_asked(claim: Claim, reason: str) -> Evidence:
    return Evidence(
        kind="lookup",
        proves="nothing",
        reason=reason,
        attempt=claim.attempt,
        phase="not_sent",
        wire_key=claim.wire_key,
        account_identity=claim.account_identity,
    )
