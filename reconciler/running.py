"""The reconciler's loops under one roof: they start together, and one death ends all in good order.

In good order means: claim nothing more, finish the cases under way, store every conclusion. A loop that fails makes the
exit code, never a silent half-working process.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from outbox_relay.attempt.send import Sender
from outbox_relay.capture.records import Wakeup
from outbox_relay.capture.wakeups import Wakeups
from outbox_relay.capture.watch import ConnectorWatch
from outbox_relay.ledger.pool import Ledger
from outbox_relay.program.ending import Ending
from outbox_relay.program.wakeups import follow
from outbox_relay.providers.accounts import Account
from outbox_relay.states import RecordType
from outbox_relay.telemetry import Health, LedgerSeries, Logger, Readiness, ReconcilerMetrics
from reconciler.loop import LOOP, CaseLoop, Pulse
from reconciler.pace import Account as AccountKey
from reconciler.pace import Pace
from reconciler.resolve import Resolver, Timing
from reconciler.retention import Retainer, RetentionTerms
from reconciler.sweep import Sweeper, repeat, show_counts
from reconciler.terms import Catalogue, Policy
from reconciler.windows import Windows
from reconciler.writer import Concluded, ConclusionWriter

WAKING_RECORDS = frozenset({RecordType.DELIVERY_UNKNOWN.value})
DRAIN_SLACK_S = 2.0
COUNT_EVERY_SWEEPS = 3
COUNT_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Instruments:
    """What every part tells about itself."""

    metrics: ReconcilerMetrics
    series: LedgerSeries
    health: Health
    log: Logger


@dataclass(frozen=True, slots=True)
class Rules:
    """What decisions rest on."""

    accounts: Mapping[AccountKey, Account]
    catalogue: Catalogue
    policy: Policy
    pace: Pace


class Reconciler:
    """One reconciler over an open ledger and an open HTTP client."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        rules: Rules,
        sender: Sender,
        pulse: Pulse,
        sweep_s: float,
        retention: RetentionTerms,
        worker: str,
        instruments: Instruments,
    ) -> None:
        self._ledger = ledger
        self._instruments = instruments
        self._pulse = pulse
        self._sweep_s = sweep_s
        self._stopping = asyncio.Event()
        self._ending = Ending(instruments.log)
        self._windows = Windows(rules.policy)
        metrics, log = instruments.metrics, instruments.log
        self._writer = ConclusionWriter(
            ledger.resolutions, metrics=metrics, health=instruments.health, log=log, on_stored=self._stored
        )
        resolver = Resolver(
            accounts=rules.accounts,
            catalogue=rules.catalogue,
            store=ledger.resolutions,
            sender=sender,
            pace=rules.pace,
            policy=rules.policy,
            timing=Timing(pulse.lease_s, pulse.deadline_s),
            draw=random.Random().random,  # noqa: S311 - spreads waits, guards nothing
            storing=lambda: self._writer.storing,
            metrics=metrics,
            log=log,
        )
        self._loop = CaseLoop(
            ledger.resolutions,
            self._writer,
            see_through=resolver.see_through,
            catalogue=rules.catalogue,
            windows=self._windows,
            pulse=pulse,
            worker=worker,
            metrics=metrics,
            health=instruments.health,
            log=log,
        )
        self._sweeper = Sweeper(ledger.claims, ledger.resolutions, wake=self._loop.wake, metrics=metrics, log=log)
        self._retainer = Retainer(ledger.retention, retention, metrics=metrics, log=log)

    @property
    def unstored(self) -> int:
        """Conclusions and cases that only this process knows of."""
        return self._writer.pending + self._loop.in_flight

    def stop(self) -> None:
        """Claim nothing more; `run` returns once everything that was learned is stored."""
        self._stopping.set()
        self._loop.rouse()

    async def hand_over(self, wakeups: Sequence[Wakeup]) -> None:
        """What Kafka announced."""
        if wakeups:
            self._loop.wake("kafka")

    async def run(self, wakeups: Wakeups | None, watch: ConnectorWatch | None = None) -> int:
        """Run until stopped or broken; return the exit code. `watch` looks after the connector, where there is one."""
        health, log = self._instruments.health, self._instruments.log
        health.expect_beats(LOOP)
        writing = asyncio.create_task(self._writer.run(), name="conclusions")
        loops = [
            asyncio.create_task(self._loop.run(self._stopping), name="unknowns"),
            asyncio.create_task(self._read(wakeups), name="kafka"),
            asyncio.create_task(self._sweep(), name="sweep"),
            asyncio.create_task(self._count(), name="counts"),
            asyncio.create_task(self._retain(), name="retention"),
        ]
        if watch is not None:
            loops.append(asyncio.create_task(watch.run(self._stopping), name="connector"))
        stopped = asyncio.create_task(self._stopping.wait(), name="stop")
        log.info("ready")
        await asyncio.wait((writing, *loops, stopped), return_when=asyncio.FIRST_COMPLETED)
        self.stop()
        health.report("stopping", Readiness.NOT_READY, "no more claims; finishing the cases under way")
        log.info("stopping", cases=self._loop.in_flight, conclusions=self._writer.pending)
        for task in loops:
            await self._ending.of(task)
        left = await self._loop.drain(within_s=self._pulse.lease_s + DRAIN_SLACK_S)
        if left:
            log.error("cases_abandoned", count=left, what_happens="their claims expire and are looked at again")
        self._writer.close()
        await self._ending.of(writing)
        stopped.cancel()
        log.info("stopped", conclusions_lost=self._writer.pending)
        return self._ending.exit_code

    async def _sweep(self) -> None:
        await self._repeat("sweep", self._sweeper.sweep, every_s=self._sweep_s)

    async def _count(self) -> None:
        def count() -> Awaitable[None]:
            return show_counts(self._ledger.reports, self._instruments.series, self._windows)

        await self._repeat("counts", count, every_s=max(COUNT_EVERY_SWEEPS * self._sweep_s, COUNT_LEAST_S))

    async def _retain(self) -> None:
        await self._repeat("retention", self._retainer.turn, every_s=self._sweep_s)

    async def _repeat(self, name: str, act: Callable[[], Awaitable[None]], *, every_s: float) -> None:
        health, metrics, log = self._instruments.health, self._instruments.metrics, self._instruments.log
        await repeat(name, act, every_s=every_s, stopping=self._stopping, health=health, metrics=metrics, log=log)

    async def _read(self, wakeups: Wakeups | None) -> None:
        await follow(
            wakeups,
            self._stopping,
            meanwhile=f"unknowns are found by the due list, every {self._pulse.idle_s:g} s at the latest",
            health=self._instruments.health,
            log=self._instruments.log,
        )

    def _stored(self, batch: Sequence[Concluded]) -> None:
        self._loop.stored(batch)
