"""The claim loop: wake-ups and due times in, claims out, one task per claimed case.

It claims only what it has free slots for, never while conclusions cannot be stored, and starts with the case whose
replay window ends first. Several reconcilers may run: a case belongs to whoever holds its claim.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.records import ClaimToken, Postponement, Resolution, UnknownCase
from outbox_relay.telemetry import Health, Logger, Readiness, ReconcilerMetrics, describe_error
from reconciler.conclude import Conclusion
from reconciler.resolve import Held
from reconciler.settle import replay_until
from reconciler.terms import Catalogue, Terms
from reconciler.windows import Windows
from reconciler.writer import Concluded, ConclusionWriter

LOOP = "unknowns"
CALL_MAX_S = 15.0
"""A call to the ledger that neither answers nor breaks is given up after this."""
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0
CLAIM_MAX = 64
IDLE_LEAST_S = 0.05
"""What is due and cannot be claimed (somebody else holds it) must not spin us."""
POLL_S = 1.0
"""Without Kafka an idle ledger is asked this often, or at every sweep where that is more often."""


class UnknownStore(Protocol):
    """The part of the ledger that gives cases."""

    async def claim_unknowns(
        self,
        limit: int,
        *,
        token: ClaimToken,
        lease_s: float,
        deadline_s: float,
        worker: str,
        windows_s: Mapping[tuple[str, str, str], float],
    ) -> list[UnknownCase]:
        """Claim what must be looked at, the shortest window first."""

    async def recall(self, token: ClaimToken) -> list[UnknownCase]:
        """What was got under this token."""

    async def next_due_in(self) -> float | None:
        """Seconds until there is something to look at."""

    async def probe_write(self) -> None:
        """Raise LedgerUnavailable when the ledger takes no conclusions."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Durations in seconds, and how many cases are worked on at the same time."""

    lease_s: float
    deadline_s: float
    idle_s: float
    """How long to wait at most when nothing announces work."""
    slots: int


SeeThrough = Callable[[Held], Awaitable[Conclusion | None]]


class CaseLoop:
    """Turns wake-ups into claims and claims into conclusions, until it is told to stop."""

    def __init__(
        self,
        store: UnknownStore,
        writer: ConclusionWriter,
        *,
        see_through: SeeThrough,
        catalogue: Catalogue,
        windows: Windows,
        pulse: Pulse,
        worker: str,
        metrics: ReconcilerMetrics,
        health: Health,
        log: Logger,
    ) -> None:
        self._store = store
        self._writer = writer
        self._see_through = see_through
        self._catalogue = catalogue
        self._windows = windows
        self._windows_s = catalogue.windows_s(windows.policy)
        self._pulse = pulse
        self._worker = worker
        self._metrics = metrics
        self._health = health
        self._log = log
        self._bell = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken = 0
        self._trusted = self._trouble_told = False

    @property
    def in_flight(self) -> int:
        """Cases under way in this process."""
        return len(self._tasks)

    def wake(self, source: str) -> None:
        """There may be something to look at."""
        self._metrics.wakeups.labels(source).inc()
        self._bell.set()

    def stored(self, batch: Sequence[Concluded]) -> None:
        """These conclusions are in the ledger, and their claims given back."""
        for item in batch:
            if isinstance(item.conclusion, Resolution):
                self._windows.settled(item.case)
        self._freed(len(batch))

    def _freed(self, count: int) -> None:
        self._taken -= count
        self._bell.set()

    def rouse(self) -> None:
        """Make a sleeping loop look around, to see that it shall stop."""
        self._bell.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Claim until told to stop. A dead ledger only makes it wait."""
        delay_s = RETRY_FIRST_S
        while not stopping.is_set():
            self._health.beat(LOOP, within_s=self._pulse.idle_s + CALL_MAX_S + 2 * RETRY_MAX_S)
            try:
                await self._turn(stopping)
                delay_s = RETRY_FIRST_S
            except (LedgerUnavailable, TimeoutError) as error:
                self._ledger_failed(error)
                await pause(stopping, delay_s)
                delay_s = min(RETRY_MAX_S, delay_s * 2)
        self._health.forget(LOOP)

    async def drain(self, *, within_s: float) -> int:
        """Wait for the cases under way; return how many are left after `within_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        return len(self._tasks)

    async def _turn(self, stopping: asyncio.Event) -> None:
        self._bell.clear()
        free = min(self._pulse.slots - self._taken, CLAIM_MAX)
        if not self._writer.storing:
            self._trusted = False
        if free <= 0 or not self._writer.storing:
            await self._sleep(self._pulse.idle_s)
            return
        if not self._trusted:
            await self._prove_ledger()
        held = await self._claim(free)
        if stopping.is_set():
            self._give_back(held)
            return
        for one in self._shortest_window_first(held):
            self._start(one)
        if len(held) < free:
            await self._sleep(await self._idle_s())

    async def _prove_ledger(self) -> None:
        """Before the first claim, and after any trouble: a ledger that takes no conclusions must give no cases."""
        async with asyncio.timeout(CALL_MAX_S):
            await self._store.probe_write()
        self._trusted = True

    async def _claim(self, limit: int) -> list[Held]:
        token = ClaimToken(uuid4())
        lease = Lease(boottime(), self._pulse.lease_s)
        async with asyncio.timeout(CALL_MAX_S):
            try:
                cases = await self._store.claim_unknowns(
                    limit,
                    token=token,
                    lease_s=self._pulse.lease_s,
                    deadline_s=self._pulse.deadline_s,
                    worker=self._worker,
                    windows_s=self._windows_s,
                )
            except LedgerUnavailable as error:
                # The claim's COMMIT may have happened: what it got is ours, and nobody else looks before it expires.
                self._ledger_failed(error)
                return [Held(case, lease) for case in await self._store.recall(token)]
        # Not before: a full disk still takes a small row where a claim finds no room.
        self._health.report("ledger", Readiness.READY, "reachable and writable")
        self._trouble_told = False
        return [Held(case, lease) for case in cases]

    def _shortest_window_first(self, held: Sequence[Held]) -> list[Held]:
        """On recovery from an outage the window that ends first is spent first."""

        def ends(one: Held) -> tuple[bool, float]:
            claim = one.case.claim
            terms = self._catalogue.of(claim.provider, claim.account, claim.operation)
            if not isinstance(terms, Terms) or terms.replay is None:
                return True, one.case.unknown_since.timestamp()
            until = replay_until(one.case, terms, self._windows.policy)
            # A window that is over is none any more: it must not stand before those that are not.
            return until <= one.case.now, until.timestamp()

        return sorted(held, key=ends)

    def _give_back(self, held: Sequence[Held]) -> None:
        """Claimed and not begun, because the program stops: another reconciler looks at once."""
        for one in held:
            claim = one.case.claim
            self._taken += 1
            told = Postponement(claim.action_id, claim.claim_token, delay_s=0.0, reason="shutting_down")
            self._writer.put(Concluded(one.case, told))

    def _start(self, held: Held) -> None:
        self._taken += 1
        claim = held.case.claim
        terms = self._catalogue.of(claim.provider, claim.account, claim.operation)
        self._windows.note(held.case, terms, time.monotonic())
        task = asyncio.create_task(self._work(held), name="case")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, held: Held) -> None:
        conclusion = await self._see_through(held)
        if conclusion is None:
            # The ledger refused to let a replay begin: what else it refuses must be known before the next claim.
            self._trusted = False
            self._freed(1)
        else:
            self._writer.put(Concluded(held.case, conclusion))

    async def _idle_s(self) -> float:
        async with asyncio.timeout(CALL_MAX_S):
            due_in_s = await self._store.next_due_in()
        wait_s = self._pulse.idle_s if due_in_s is None else min(due_in_s, self._pulse.idle_s)
        return max(wait_s, IDLE_LEAST_S)

    async def _sleep(self, wait_s: float) -> None:
        began = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._bell.wait()
        if time.monotonic() - began >= wait_s:
            self._metrics.wakeups.labels("due").inc()

    def _ledger_failed(self, error: LedgerUnavailable | TimeoutError) -> None:
        self._trusted = False
        self._metrics.ledger_failures.labels("claim_unknowns").inc()
        if not self._trouble_told:
            self._log.error("ledger_unavailable", error=describe_error(error), hint=getattr(error, "hint", None))
        self._trouble_told = True
        self._health.report(
            "ledger",
            Readiness.NOT_READY,
            "PostgreSQL cannot be reached or takes no writes; no unknown is looked at meanwhile",
            "check the database and OUTBOX_DATABASE_URL; the reconciler goes on by itself",
        )


async def pause(stopping: asyncio.Event, delay_s: float) -> None:
    """Wait, or stop waiting because the program stops."""
    with suppress(TimeoutError):
        async with asyncio.timeout(delay_s):
            await stopping.wait()
