"""Names what one page of a lookup says. Pure.

Absent means: this was the last page and nothing on it carries our mark. Whether that is proof is the contract's and the
reconciler's business: settle time, every page read, no attempt in flight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from outbox_relay.attempt.cleaning import excerpt, kept_headers
from outbox_relay.attempt.reading import Json, ReadAnswer, as_id, search, truthy
from outbox_relay.attempt.render import marker
from outbox_relay.attempt.request import Request
from outbox_relay.attempt.retry_after import longest, read_reset, read_retry_after
from outbox_relay.ledger.records import Claim, Evidence
from outbox_relay.providers.contract import Operation
from outbox_relay.providers.exchange import Transmission
from outbox_relay.providers.parts import Lookup

_NEXT: Final = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next"?')


class LookupFinding(StrEnum):
    """What one page says."""

    FOUND = "found"
    ABSENT = "absent"
    """The last page, and our mark is not on it."""
    MORE = "more"
    """Not on this page, and there is a next one."""
    INCONCLUSIVE = "inconclusive"
    """The answer says nothing: ask again later. Spends no bound."""


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """What one page says, with the next page when there is one."""

    finding: LookupFinding
    reason: str
    evidence: Evidence
    provider_ids: tuple[str, ...] = ()
    """Everything on this page that carries our mark; more than one is a duplicate."""
    next_page: str | None = None
    retry_after_s: float | None = None
    pause_account: bool = False


@dataclass(frozen=True, slots=True)
class _Page:
    finding: LookupFinding
    reason: str
    provider_ids: tuple[str, ...] = ()
    next_page: str | None = None
    retry_after_s: float | None = None
    pause_account: bool = False


def classify_lookup(transmission: Transmission, claim: Claim, operation: Operation, request: Request) -> LookupAnswer:
    """Name what the page says."""
    page = _page(transmission, claim, operation)
    answer = transmission.answer
    proves = {LookupFinding.FOUND: "acceptance", LookupFinding.ABSENT: "absence"}.get(page.finding, "nothing")
    evidence = Evidence(
        kind="lookup",
        proves=proves,
        reason=page.reason,
        attempt=claim.attempt,
        phase=transmission.phase.value,
        method=request.method,
        url=request.target,
        wire_key=claim.wire_key,
        account_identity=request.account_identity,
        status=None if answer is None else answer.status,
        headers={} if answer is None else dict(kept_headers(answer, secrets=request.secrets)),
        # A page that was understood is other people's content: only one that was not is worth an excerpt.
        excerpt=excerpt(answer, request.secrets) if answer and page.finding is LookupFinding.INCONCLUSIVE else None,
        provider_id=page.provider_ids[0] if page.provider_ids else None,
    )
    return LookupAnswer(
        page.finding,
        page.reason,
        evidence,
        page.provider_ids,
        page.next_page,
        page.retry_after_s,
        page.pause_account,
    )


def _page(transmission: Transmission, claim: Claim, operation: Operation) -> _Page:
    lookup, answer = operation.lookup, transmission.answer
    if lookup is None:
        return _Page(LookupFinding.INCONCLUSIVE, "lookup_missing")
    if answer is None:
        return _Page(LookupFinding.INCONCLUSIVE, transmission.failure or "no_answer")
    read = ReadAnswer(answer)
    for rule in lookup.throttling:
        if read.matches(rule):
            reset = read_reset(answer, rule.reset_header) if rule.reset_header else None
            wait = longest([read_retry_after(answer), reset, rule.min_wait_s or None])
            return _Page(LookupFinding.INCONCLUSIVE, "throttled", retry_after_s=wait, pause_account=True)
    if answer.status not in lookup.statuses or not answer.complete or not read.holds(lookup.when):
        reason = f"http_{answer.status}" if answer.complete else "answer_broken_off"
        refused = answer.status in (401, 403)
        asked = read_retry_after(answer)
        return _Page(LookupFinding.INCONCLUSIVE, reason, retry_after_s=asked, pause_account=refused)
    return _searched(read, lookup, claim, operation)


def _searched(read: ReadAnswer, lookup: Lookup, claim: Claim, operation: Operation) -> _Page:
    items = read.read(lookup.items)
    if not isinstance(items, list):
        return _Page(LookupFinding.INCONCLUSIVE, "answer_unreadable")
    wanted = claim.wire_key if lookup.by == "key" else marker(claim, operation).strip()
    ours = [item for item in items if _carries(search(lookup.read, item), wanted, lookup)]
    if ours:
        ids = tuple(found for item in ours if (found := as_id(search(lookup.id, item))) is not None)
        return _Page(LookupFinding.FOUND, "found" if len(ours) == 1 else "found_several", ids)
    next_page = _next_page(read, lookup)
    if next_page is None:
        return _Page(LookupFinding.ABSENT, "not_found")
    return _Page(LookupFinding.MORE, "not_on_this_page", next_page=next_page)


def _carries(value: Json, wanted: str, lookup: Lookup) -> bool:
    texts = value if isinstance(value, list) else [value]
    if lookup.compare == "equals":
        return wanted in texts
    return any(isinstance(text, str) and wanted in text for text in texts)


def _next_page(read: ReadAnswer, lookup: Lookup) -> str | None:
    """The next page, or None when the contract says that there is none."""
    if lookup.paging is None or lookup.paging.kind == "single":
        return None
    if lookup.paging.kind == "link_header":
        links = _NEXT.search(", ".join(read.answer.headers.get("link", ())))
        return links.group(1) if links else None
    cursor = read.read(lookup.paging.cursor or "")
    return str(cursor) if isinstance(cursor, str | int) and truthy(cursor) else None
