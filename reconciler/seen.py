"""What a case's evidence says, in the words that the reconciler itself wrote it with.

Pure. Reads facts; concludes nothing from them.
"""

from __future__ import annotations

from enum import StrEnum

from outbox_relay.ledger.records import Evidence, UnknownCase
from reconciler.terms import Reason, Terms


class Seen(StrEnum):
    """Reason classes of the evidence that the reconciler itself writes and later reads back."""

    FOUND = "found"
    MULTIPLE_MATCHES = "multiple_matches"
    EMPTY = "empty"
    EMPTY_BEFORE_SETTLED = "empty_before_settled"
    EMPTY_NOT_PROOF = "empty_not_proof"
    REPLAY_REFUSED = "replay_refused"
    REPLAYED_SERVER_ERROR = "replayed_server_error"


EMPTY_ANSWERS = frozenset({Seen.EMPTY, Seen.EMPTY_BEFORE_SETTLED, Seen.EMPTY_NOT_PROOF})


def place_changed(case: UnknownCase, terms: Terms) -> Reason | None:
    """Why the configured account is not where the attempts went; None when it is."""
    if case.claim.account_identity != terms.account_identity:
        return Reason.ACCOUNT_CHANGED
    return Reason.BASE_URL_CHANGED if case.claim.base_url != terms.base_url else None


def key_is_known(case: UnknownCase, terms: Terms) -> bool:
    """True when the provider said that this key came with another body: an earlier request arrived.

    That an earlier request is still in progress is no such answer: it may yet fail and leave nothing.
    """
    at_work = terms.replay.in_progress_reasons if terms.replay else frozenset()
    return any(item.proves == "arrival" and item.reason not in at_work for item in case.evidence)


def _lookups_since_last_attempt(case: UnknownCase) -> list[Evidence]:
    """Lookups after the last attempt: an answer from before it says nothing about it."""
    return [
        item
        for item in case.evidence
        if item.kind == "lookup" and (item.recorded_at is None or item.recorded_at >= case.last_attempt_at)
    ]


def empty_lookups(case: UnknownCase) -> int:
    """How many lookups since the last attempt read the record to its end and did not find the action."""
    return sum(item.reason in EMPTY_ANSWERS for item in _lookups_since_last_attempt(case))


def failed_lookups(case: UnknownCase) -> int:
    """How many lookups since the last attempt said nothing."""
    return sum(item.reason not in EMPTY_ANSWERS for item in _lookups_since_last_attempt(case))
