"""What nobody announces: claims that ran out, deadlines that passed, and the counts that metrics show.

An expired dispatch becomes delivery_unknown and never ready again. Each sweep is bounded; the next one goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.reports import Backlog, Counters
from outbox_relay.states import DeliveryState, ExecutionState, ReceiptState, State
from outbox_relay.telemetry import (
    Health,
    LedgerSeries,
    LedgerSnapshot,
    Logger,
    ProviderCounts,
    ReconcilerMetrics,
    describe_error,
)
from reconciler.loop import CALL_MAX_S, pause
from reconciler.windows import Windows

SWEEP_BATCH = 500
SWEEP_BATCHES_MAX = 20


class ClaimSweeper(Protocol):
    """The part of the ledger that ends expired claims."""

    async def sweep_expired(self, limit: int = 500, *, actor: str = "relay") -> int:
        """Turn dispatches whose claim expired into unknowns; give expired looks back."""


class DeadlineSweeper(Protocol):
    """The part of the ledger that ends actions whose deadline passed unsent."""

    async def sweep_deadlines(self, limit: int = 500) -> int:
        """Expire them; return how many."""


class Reporter(Protocol):
    """The part of the ledger that counts."""

    async def counters(self) -> Counters:
        """Created and all states in one snapshot."""

    async def backlog(self) -> list[Backlog]:
        """What waits, per account."""


class Sweeper:
    """Looks for what ran out, at every turn."""

    def __init__(
        self,
        claims: ClaimSweeper,
        deadlines: DeadlineSweeper,
        *,
        wake: Callable[[str], None],
        metrics: ReconcilerMetrics,
        log: Logger,
    ) -> None:
        self._claims = claims
        self._deadlines = deadlines
        self._wake = wake
        self._metrics = metrics
        self._log = log

    async def sweep(self) -> None:
        """One sweep. Raises LedgerUnavailable."""
        expired = await _batches(lambda: self._claims.sweep_expired(SWEEP_BATCH, actor="reconciler"))
        if expired:
            self._metrics.swept.labels("expired_claim").inc(expired)
            self._log.warning("claims_expired", count=expired, what_happens="they are unknown and will be settled")
            self._wake("sweep")
        late = await _batches(lambda: self._deadlines.sweep_deadlines(SWEEP_BATCH))
        if late:
            self._metrics.swept.labels("deadline").inc(late)
            self._log.info("deadlines_passed", count=late)


async def _batches(sweep: Callable[[], Awaitable[int]]) -> int:
    total = 0
    for _ in range(SWEEP_BATCHES_MAX):
        async with asyncio.timeout(CALL_MAX_S):
            moved = await sweep()
        total += moved
        if moved < SWEEP_BATCH:
            break
    return total


async def show_counts(reports: Reporter, series: LedgerSeries, windows: Windows) -> None:
    """Hand a fresh snapshot to the metrics. Raises LedgerUnavailable."""
    async with asyncio.timeout(CALL_MAX_S):
        counters, backlog = await reports.counters(), await reports.backlog()
    series.show(snapshot_of(counters, backlog, windows.least_left_s(time.monotonic())))


def snapshot_of(counters: Counters, backlog: Sequence[Backlog], windows: Mapping[str, float]) -> LedgerSnapshot:
    """The ledger's counts by provider, accounts added up."""
    names = {item.provider for item in counters.created} | {item.provider for item in counters.states}
    names |= {item.provider for item in backlog}
    return LedgerSnapshot({name: _provider(name, counters, backlog, windows.get(name)) for name in sorted(names)})


def _provider(name: str, counters: Counters, backlog: Sequence[Backlog], window_left_s: float | None) -> ProviderCounts:
    states: dict[State, int] = {}
    receipts: dict[ReceiptState, int] = {}
    suspected = 0
    for item in counters.states:
        if item.provider == name:
            state = State(ExecutionState(item.execution_state), DeliveryState(item.delivery_state))
            receipt = ReceiptState(item.receipt_state)
            states[state] = states.get(state, 0) + item.total
            receipts[receipt] = receipts.get(receipt, 0) + item.total
            suspected += item.duplicates_suspected
    waiting = [item for item in backlog if item.provider == name]
    return ProviderCounts(
        created=sum(item.total for item in counters.created if item.provider == name),
        states=states,
        receipts=receipts,
        awaiting_review=sum(item.total for item in counters.awaiting_review if item.provider == name),
        duplicates_suspected=suspected,
        due=sum(item.due for item in waiting),
        oldest_due_age_s=max((item.oldest_due_age_s or 0.0 for item in waiting), default=0.0),
        oldest_unknown_age_s=max((item.oldest_unknown_age_s or 0.0 for item in waiting), default=0.0),
        window_min_remaining_s=window_left_s,
    )


async def repeat(
    name: str,
    act: Callable[[], Awaitable[None]],
    *,
    every_s: float,
    stopping: asyncio.Event,
    health: Health,
    metrics: ReconcilerMetrics,
    log: Logger,
) -> None:
    """Do something at every interval until told to stop. A dead ledger is the claim loop's to report; it only waits."""
    failing = False
    while not stopping.is_set():
        health.beat(name, within_s=every_s + 2 * CALL_MAX_S * SWEEP_BATCHES_MAX)
        try:
            await act()
            failing = False
        except (LedgerUnavailable, TimeoutError) as error:
            metrics.ledger_failures.labels(name).inc()
            if not failing:
                log.warning("ledger_unavailable", during=name, error=describe_error(error))
            failing = True
        await pause(stopping, every_s)
    health.forget(name)
