"""Stores conclusions: what the reconciler knows, or leaves to somebody, in the ledger's words.

What it must never do stands in `outbox_relay/program/writer.py`: drop one. A conclusion may say what the world did (a
replay was accepted). A conclusion under a lost claim changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from outbox_relay.ledger.records import (
    ActionId,
    Postponement,
    Recorded,
    Resolution,
    ReviewRequest,
    UnknownCase,
    Verdict,
)
from outbox_relay.program.writer import BatchWriter
from outbox_relay.states import DeliveryState, Event, ExecutionState
from outbox_relay.telemetry import Health, Logger, ReconcilerMetrics, describe_error
from reconciler.conclude import Conclusion

BATCH_MAX = 200
LINGER_S = 0.003

ARRIVED_BY = {Event.LATE_ACCEPTANCE: "late_response", Event.RECEIPT_ARRIVED: "receipt"}
"""How the metric names acceptances that nobody asked for; lookups and replays are counted when they are answered."""
KINDS = (Resolution, ReviewRequest, Postponement)
"""In the order in which they are stored: first what the world did."""


class ConclusionStore(Protocol):
    """The part of the ledger that takes conclusions; each call is one transaction."""

    async def resolve(self, resolutions: Sequence[Resolution]) -> list[Recorded]:
        """Store resolutions."""

    async def postpone(self, postponements: Sequence[Postponement]) -> list[Recorded]:
        """Give claims back."""

    async def open_review(self, requests: Sequence[ReviewRequest]) -> list[Recorded]:
        """Hand cases to people."""


@dataclass(frozen=True, slots=True)
class Concluded:
    """A conclusion on its way to the ledger, with the case it is about."""

    case: UnknownCase
    conclusion: Conclusion


class ConclusionWriter(BatchWriter[Concluded]):
    """The reconciler's writer. While it cannot store, nothing may be claimed."""

    def __init__(
        self,
        store: ConclusionStore,
        *,
        metrics: ReconcilerMetrics,
        health: Health,
        log: Logger,
        on_stored: Callable[[Sequence[Concluded]], None],
    ) -> None:
        """`on_stored` is told whose claims were given back."""
        super().__init__(
            "conclusion",
            failures=metrics.ledger_failures.labels("record_conclusions"),
            health=health,
            log=log,
            batch_max=BATCH_MAX,
            linger_s=LINGER_S,
        )
        self._store = store
        self._metrics = metrics
        self._log = log
        self._on_stored = on_stored

    def parts(self, batch: Sequence[Concluded]) -> list[Sequence[Concluded]]:
        """By kind, as each kind has its own call."""
        by_kind = ([item for item in batch if isinstance(item.conclusion, kind)] for kind in KINDS)
        return [part for part in by_kind if part]

    async def store(self, part: Sequence[Concluded]) -> list[Recorded]:
        """Store conclusions of one kind."""
        told = [item.conclusion for item in part]
        if resolutions := [one for one in told if isinstance(one, Resolution)]:
            return await self._store.resolve(resolutions)
        if requests := [one for one in told if isinstance(one, ReviewRequest)]:
            return await self._store.open_review(requests)
        return await self._store.postpone([one for one in told if isinstance(one, Postponement)])

    def action_of(self, item: Concluded) -> ActionId:
        """A claimed case has one conclusion."""
        return item.conclusion.action_id

    def plainer(self, item: Concluded) -> Concluded:
        """What it concludes, without the evidence."""
        return replace(item, conclusion=replace(item.conclusion, evidence=None))

    def given_up(self, item: Concluded, error: Exception) -> None:
        """The claim runs out, and the case is looked at again."""
        self._log.error("conclusion_dropped", action_id=str(self.action_of(item)), error=describe_error(error))

    def stored(self, batch: Sequence[Concluded], recorded: Sequence[Recorded], *, repeated: bool) -> None:
        """Count them, and tell the loop whose claims were given back."""
        answers = {answer.action_id: answer for answer in recorded}
        for item in batch:
            self._count(item, answers.get(self.action_of(item)), repeated=repeated)
        self._on_stored(batch)

    def _count(self, item: Concluded, answer: Recorded | None, *, repeated: bool) -> None:
        conclusion, provider = item.conclusion, item.case.claim.provider
        # After a lost answer our own first write makes the second one stale: that is no claim lost.
        if answer is None or (answer.verdict is Verdict.STALE and repeated):
            return
        if answer.verdict is Verdict.STALE:
            self._metrics.stale_writes.inc()
            self._log.warning(
                "claim_lost",
                action_id=str(conclusion.action_id),
                reason=conclusion.reason,
                what_happens="the state is not changed; an acceptance is kept as evidence",
            )
            return
        result = result_of(conclusion, answer)
        self._metrics.reconciliations.labels(provider, result).inc()
        if isinstance(conclusion, ReviewRequest) and not item.case.review_open:
            self._metrics.reviews_opened.labels(provider, conclusion.reason).inc()
        if isinstance(conclusion, Resolution):
            if (way := ARRIVED_BY.get(conclusion.event)) is not None:
                self._metrics.acceptances.labels(provider, way).inc()
            age_s = (item.case.now - item.case.unknown_since).total_seconds()
            self._metrics.unknown_to_resolved_seconds.labels(provider).observe(max(age_s, 0.0))
        if not isinstance(conclusion, Postponement):
            self._log.info(
                "reconciled" if isinstance(conclusion, Resolution) else "review",
                action_id=str(conclusion.action_id),
                provider=provider,
                result=result,
                reason=conclusion.reason,
            )


def result_of(conclusion: Conclusion, answer: Recorded) -> str:
    """The word by which the metric counts what became of a case."""
    if isinstance(conclusion, Postponement):
        return "postponed"
    if isinstance(conclusion, ReviewRequest):
        return "review"
    if answer.delivery_state is DeliveryState.RECONCILED_CONFIRMED:
        return "confirmed"
    named = {
        ExecutionState.RETRY_SCHEDULED: "resend",
        ExecutionState.CANCELLED: "cancelled",
        ExecutionState.EXPIRED: "expired",
    }
    return named.get(answer.execution_state, "failed")
