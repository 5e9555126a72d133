"""The claim loop: wake-ups and timers in, claims out, one task per claimed action.

It claims only what can be sent now, never while outcomes cannot be stored, and after a claim whose answer was lost it
asks the ledger what it got before it does anything else. It sends nothing itself and never raises for a dead ledger.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.dispatch.demand import AccountKey, Demands, Order
from outbox_relay.dispatch.limits import Permit
from outbox_relay.dispatch.timers import Timers
from outbox_relay.dispatch.writer import OutcomeWriter
from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.records import Claim, ClaimToken, Demand
from outbox_relay.telemetry import Health, Logger, Readiness, RelayMetrics, child, describe_error

LOOP = "claims"
BEAT_S = 5.0
"""The loop turns at least this often, so that liveness need not wait for a rare sweep."""
CALL_MAX_S = 15.0
"""A call to the ledger that neither answers nor breaks is given up after this."""
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0
SWEEP_BATCH = 500
SWEEP_BATCHES_MAX = 20


class ClaimStore(Protocol):
    """The part of the ledger that gives claims."""

    async def claim(
        self, demands: Sequence[Demand], *, token: ClaimToken, lease_s: float, deadline_s: float, worker: str
    ) -> list[Claim]:
        """Claim due actions in one round trip."""

    async def recall(self, token: ClaimToken) -> list[Claim]:
        """What was got under this token."""

    async def sweep_expired(self, limit: int = 500) -> int:
        """Turn claims that ran out into unknowns."""

    async def next_due_in(self, accounts: Sequence[AccountKey]) -> float | None:
        """Seconds until the earliest due action."""

    async def probe_write(self) -> None:
        """Raise LedgerUnavailable when the ledger takes no writes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds; `polling` is the mode without Kafka."""

    lease_s: float
    deadline_s: float
    sweep_s: float
    linger_s: float
    polling: bool


Start = Callable[[Claim, Lease, Permit], None]
"""Begin an attempt in a task of its own."""
Release = Callable[[Claim, Permit], None]
"""Give a claim back unsent."""


class ClaimLoop:
    """Turns wake-ups into claims until it is told to stop."""

    def __init__(
        self,
        store: ClaimStore,
        demands: Demands,
        writer: OutcomeWriter,
        *,
        timing: Timing,
        worker: str,
        start: Start,
        release: Release,
        metrics: RelayMetrics,
        health: Health,
        log: Logger,
    ) -> None:
        self._store = store
        self._demands = demands
        self._writer = writer
        self._timing = timing
        self._worker = worker
        self._start = start
        self._release = release
        self._metrics = metrics
        self._health = health
        self._log = log
        self._bell = asyncio.Event()
        self._promised = False
        self._trusted = self._was_ready = self._trouble_told = False
        self._doubts: set[str] = set()
        self._timers = Timers(sweep_s=timing.sweep_s, polling=timing.polling, now=time.monotonic())

    def wake(self, source: str, accounts: Iterable[AccountKey] | None = None, *, promised: bool = False) -> None:
        """There may be due work for these accounts (all, by default); with `promised`, an empty claim is a refusal."""
        if self._demands.wake(accounts):
            self._promised |= promised
            child(self._metrics.wakeups, source).inc()
            self._bell.set()

    def slot_freed(self, account: AccountKey) -> None:
        """An attempt of this account ended."""
        if not self._bell.is_set() and self._demands.worth_a_look(account):
            child(self._metrics.wakeups, "freed").inc()
            self._bell.set()

    def scheduled(self) -> None:
        """An action was scheduled for later: the next due time may have changed."""
        self._timers.due_time_changed(time.monotonic())
        self._bell.set()

    def rouse(self) -> None:
        """Make a sleeping loop look around, to see that it shall stop."""
        self._bell.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Claim until told to stop. A dead ledger only makes it wait."""
        delay_s = RETRY_FIRST_S
        while not stopping.is_set():
            self._health.beat(LOOP, within_s=BEAT_S + 2 * CALL_MAX_S)
            try:
                await self._turn(stopping)
                delay_s = RETRY_FIRST_S
            except (LedgerUnavailable, TimeoutError) as error:
                self._ledger_failed(error)
                await _pause(stopping, delay_s)
                delay_s = min(RETRY_MAX_S, delay_s * 2)
        self._health.forget(LOOP)

    async def _turn(self, stopping: asyncio.Event) -> None:
        if not self._writer.storing:
            self._trusted = False
            await _pause(stopping, RETRY_FIRST_S)
            return
        if not self._trusted:
            await self._prove_ledger()
        now = time.monotonic()
        for source in self._timers.ring(now):
            if source == "sweep":
                self._doubts.add("sweep")
                await self._sweep()
                self._doubts.discard("sweep")
            self.wake(source)
        orders = self._demands.take(now)
        if not orders:
            self._doubts.discard("claim")
        self._tell_ready()
        if orders:
            await self._claim(orders, stopping)
        elif self._timers.look_ahead_wanted(now):
            await self._look_ahead()
        else:
            await self._sleep()

    async def _prove_ledger(self) -> None:
        """Before the first claim, and after any trouble: a ledger that takes no outcomes must give no claims."""
        async with asyncio.timeout(CALL_MAX_S):
            await self._store.probe_write()
        self._trusted = True
        self._demands.wake()

    def _tell_ready(self) -> None:
        # A full disk still takes the probe's small row: what has failed must have worked again.
        if self._doubts:
            return
        if self._health.readiness_of("ledger") is not Readiness.READY:
            self._log.info("ledger_available_again" if self._was_ready else "ready", worker=self._worker)
        self._health.report("ledger", Readiness.READY, "reachable and writable")
        self._was_ready = True
        self._trouble_told = False

    async def _sweep(self) -> None:
        for _ in range(SWEEP_BATCHES_MAX):
            self._health.beat(LOOP, within_s=BEAT_S + 2 * CALL_MAX_S)
            async with asyncio.timeout(CALL_MAX_S):
                moved = await self._store.sweep_expired(SWEEP_BATCH)
            if moved:
                self._metrics.expired_claims.inc(moved)
                self._log.warning("claims_expired", count=moved, what_happens="the reconciler settles them")
            if moved < SWEEP_BATCH:
                return

    async def _claim(self, orders: Sequence[Order], stopping: asyncio.Event) -> None:
        token = ClaimToken(uuid4())
        promised, self._promised = self._promised, False
        lease = Lease(obtained_at_boottime=boottime(), lease_s=self._timing.lease_s)
        claims: list[Claim] = []
        try:
            claims = await self._ask(orders, token, lease)
        finally:
            self._demands.settle(orders, claims)
        now = time.monotonic()
        if claims:
            self._timers.found_work(now)
        elif promised:
            self._metrics.refused_claims.inc()
        self._timers.due_time_changed(now)
        permits = {order.account: order.permit for order in orders}
        for provider, count in Counter(claim.provider for claim in claims).items():
            self._metrics.claimed.labels(provider).inc(count)
        for claim in claims:
            self._begin(claim, lease, permits[claim.provider, claim.account], stopping)

    def _begin(self, claim: Claim, lease: Lease, permit: Permit, stopping: asyncio.Event) -> None:
        child(self._metrics.due_to_claim_seconds, claim.provider).observe(claim.due_age_s)
        if stopping.is_set():
            self._release(claim, permit)
        else:
            self._start(claim, lease, permit)

    async def _ask(self, orders: Sequence[Order], token: ClaimToken, lease: Lease) -> list[Claim]:
        try:
            async with asyncio.timeout(CALL_MAX_S):
                claims = await self._store.claim(
                    [order.demand for order in orders],
                    token=token,
                    lease_s=self._timing.lease_s,
                    deadline_s=self._timing.deadline_s,
                    worker=self._worker,
                )
            self._doubts.discard("claim")
            return claims
        except (LedgerUnavailable, TimeoutError) as error:
            self._ledger_failed(error)
            self._doubts.add("claim")
            return await self._recall(token, lease)

    async def _recall(self, token: ClaimToken, lease: Lease) -> list[Claim]:
        """The claim's COMMIT may have happened: what it got is ours, and nobody else can send it before it expires."""
        self._health.beat(LOOP, within_s=lease.lease_s + CALL_MAX_S)
        delay_s = RETRY_FIRST_S
        while (left_s := lease.remaining_s()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    claims = await self._store.recall(token)
                    if claims:
                        # Recalling only reads: what is sent must also be storable.
                        await self._store.probe_write()
            except (LedgerUnavailable, TimeoutError) as error:
                self._ledger_failed(error)
                await asyncio.sleep(min(delay_s, max(0.0, lease.remaining_s())))
                delay_s = min(RETRY_MAX_S, delay_s * 2)
                continue
            self._log.info("claims_recalled", count=len(claims))
            return claims
        return []

    async def _look_ahead(self) -> None:
        self._timers.looking_ahead(time.monotonic())
        async with asyncio.timeout(CALL_MAX_S):
            due_in_s = await self._store.next_due_in(sorted(self._demands.gates))
        self._timers.next_due(due_in_s, time.monotonic())

    async def _sleep(self) -> None:
        now = time.monotonic()
        wait_s = min(BEAT_S, self._timers.next_ring() - now)
        if (opens_in_s := self._demands.opens_in(now)) is not None:
            wait_s = min(wait_s, opens_in_s)
        try:
            async with asyncio.timeout(max(0.0, wait_s)):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()

    def _ledger_failed(self, error: LedgerUnavailable | TimeoutError) -> None:
        self._metrics.ledger_failures.labels("claim").inc()
        if not self._trouble_told:
            self._log.error("ledger_unavailable", error=describe_error(error), hint=getattr(error, "hint", None))
        self._trouble_told = True
        self._trusted = False
        self._health.report(
            "ledger",
            Readiness.NOT_READY,
            "PostgreSQL cannot be reached or takes no writes; nothing is claimed meanwhile",
            "check the database and OUTBOX_DATABASE_URL; dispatch resumes by itself",
        )


async def _pause(stopping: asyncio.Event, delay_s: float) -> None:
    """Wait, or stop waiting because the program stops."""
    try:
        async with asyncio.timeout(delay_s):
            await stopping.wait()
    except TimeoutError:
        return
