"""Stores conclusions, many per write, until they are stored.

A conclusion may say what the world did (a replay was accepted), so it is never dropped: not by a dead ledger, not by a
shutdown, not by one that cannot be stored beside others. A conclusion under a lost claim changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.records import Postponement, Recorded, Resolution, ReviewRequest, UnknownCase, Verdict
from outbox_relay.states import DeliveryState, Event, ExecutionState
from outbox_relay.telemetry import Health, Logger, Readiness, ReconcilerMetrics, describe_error
from reconciler.conclude import Conclusion

BATCH_MAX = 200
LINGER_S = 0.003
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
WRITE_MAX_S = 15.0
"""A connection that neither answers nor breaks is given up after this; longer than the ledger's statement timeout."""

ARRIVED_BY = {Event.LATE_ACCEPTANCE: "late_response", Event.RECEIPT_ARRIVED: "receipt"}
"""How the metric names acceptances that nobody asked for; lookups and replays are counted when they are answered."""

C = TypeVar("C", Resolution, Postponement, ReviewRequest)


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


class ConclusionWriter:
    """One queue, one write at a time; what arrives during a write is the next one."""

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
        self._store = store
        self._metrics = metrics
        self._health = health
        self._log = log
        self._on_stored = on_stored
        self._waiting: list[Concluded] = []
        self._arrived = asyncio.Event()
        self._closing = False
        self._failing = False
        self._repeated = False

    @property
    def storing(self) -> bool:
        """False while conclusions cannot be stored: claim nothing then."""
        return not self._failing

    @property
    def pending(self) -> int:
        """Conclusions that are known here and nowhere else."""
        return len(self._waiting)

    def put(self, concluded: Concluded) -> None:
        """Queue a conclusion. Never waits."""
        self._waiting.append(concluded)
        self._arrived.set()

    def close(self) -> None:
        """No more conclusions will come: `run` returns once all are stored."""
        self._closing = True
        self._arrived.set()

    async def run(self) -> None:
        """Store until closed and empty."""
        while self._waiting or not self._closing:
            await self._arrived.wait()
            if not self._closing:
                await asyncio.sleep(LINGER_S)
            batch = self._waiting[:BATCH_MAX]
            if batch:
                await self._write(batch)
                del self._waiting[: len(batch)]
                self._on_stored(batch)
            if not self._waiting and not self._closing:
                self._arrived.clear()

    async def _write(self, batch: Sequence[Concluded]) -> None:
        told = [item.conclusion for item in batch]
        recorded: list[Recorded] = []
        self._repeated = False
        recorded += await self._until_stored(self._store.resolve, [one for one in told if isinstance(one, Resolution)])
        recorded += await self._until_stored(
            self._store.open_review, [one for one in told if isinstance(one, ReviewRequest)]
        )
        recorded += await self._until_stored(
            self._store.postpone, [one for one in told if isinstance(one, Postponement)]
        )
        answers = {answer.action_id: answer for answer in recorded}
        # After a lost answer our own first write makes the second one stale: that is no claim lost.
        for item in batch:
            self._count(item, answers.get(item.conclusion.action_id))

    async def _until_stored(
        self, store: Callable[[Sequence[C]], Awaitable[list[Recorded]]], told: Sequence[C]
    ) -> list[Recorded]:
        delay_s = RETRY_FIRST_S
        while told:
            try:
                async with asyncio.timeout(WRITE_MAX_S):
                    recorded = await self._together_or_alone(store, told)
            except (LedgerUnavailable, TimeoutError) as error:
                self._failed(error)
                self._repeated = True
                await asyncio.sleep(delay_s)
                delay_s = min(RETRY_MAX_S, delay_s * 2)
                continue
            self._succeeded()
            return recorded
        return []

    async def _together_or_alone(
        self, store: Callable[[Sequence[C]], Awaitable[list[Recorded]]], told: Sequence[C]
    ) -> list[Recorded]:
        try:
            return await store(told)
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - one conclusion must not keep the others from being stored
            self._log.error("batch_refused", error=describe_error(error), size=len(told))
            return [recorded for one in told for recorded in await self._alone(store, one)]

    async def _alone(self, store: Callable[[Sequence[C]], Awaitable[list[Recorded]]], one: C) -> list[Recorded]:
        try:
            return await store([one])
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - what it concludes must be stored even when its details cannot be
            self._log.error("conclusion_refused", action_id=str(one.action_id), error=describe_error(error))
        try:
            return await store([replace(one, evidence=None)])
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the claim runs out and the case is looked at again
            self._log.error("conclusion_dropped", action_id=str(one.action_id), error=describe_error(error))
            return []

    def _failed(self, error: LedgerUnavailable | TimeoutError) -> None:
        self._metrics.ledger_failures.labels("record_conclusions").inc()
        if not self._failing:
            self._log.error("conclusions_not_storable", error=describe_error(error), waiting=len(self._waiting))
        self._failing = True
        self._health.report(
            "conclusions",
            Readiness.NOT_READY,
            f"{len(self._waiting)} conclusions wait to be stored; nothing is claimed meanwhile",
            "make the ledger writable again; this process keeps the conclusions and stores them then",
        )

    def _succeeded(self) -> None:
        if self._failing:
            self._log.info("conclusions_storable_again")
        self._failing = False
        self._health.report("conclusions", Readiness.READY, "conclusions are stored as they come")

    def _count(self, item: Concluded, answer: Recorded | None) -> None:
        conclusion, provider = item.conclusion, item.case.claim.provider
        if answer is None or (answer.verdict is Verdict.STALE and self._repeated):
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
