"""The relay's loops under one roof: they start together, and one death ends all in good order.

In good order means: stop claiming, finish what is in flight, give the rest back, store every outcome. A loop that fails
makes the exit code, never a silent half-working process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outbox_relay.attempt.send import Sender
from outbox_relay.capture.records import Wakeup
from outbox_relay.capture.wakeups import Wakeups
from outbox_relay.dispatch.demand import AccountKey, Demands
from outbox_relay.dispatch.limits import AccountGate
from outbox_relay.dispatch.loop import LOOP, ClaimLoop, ClaimStore, Timing
from outbox_relay.dispatch.sending import Dispatcher, Misfit
from outbox_relay.dispatch.writer import Finished, OutcomeStore, OutcomeWriter
from outbox_relay.program.ending import Ending
from outbox_relay.program.wakeups import follow
from outbox_relay.providers.accounts import Account
from outbox_relay.states import Event, RecordType
from outbox_relay.telemetry import Health, Logger, Readiness, RelayMetrics

WAKING_RECORDS = frozenset({RecordType.ACTION_CREATED.value, RecordType.RETRY_SCHEDULED.value})
DRAIN_SLACK_S = 2.0
"""Beyond the deadline that every attempt has: for classifying and for a slow machine."""


@dataclass(frozen=True, slots=True)
class Instruments:
    """What every part tells about itself."""

    metrics: RelayMetrics
    health: Health
    log: Logger


class Relay:
    """One relay over an open ledger and an open HTTP client."""

    def __init__(
        self,
        claims: ClaimStore,
        outcomes: OutcomeStore,
        *,
        accounts: Mapping[AccountKey, Account],
        gates: Mapping[AccountKey, AccountGate],
        sender: Sender,
        misfit: Misfit,
        timing: Timing,
        worker: str,
        instruments: Instruments,
    ) -> None:
        metrics, self._health, self._log = instruments.metrics, instruments.health, instruments.log
        self._metrics = metrics
        self._timing = timing
        self._stopping = asyncio.Event()
        self._ending = Ending(self._log)
        self._writer = OutcomeWriter(
            outcomes,
            linger_s=timing.linger_s,
            lease_s=timing.lease_s,
            fatal=self._fail,
            metrics=metrics,
            health=self._health,
            log=self._log,
            on_stored=self._stored,
        )
        self._dispatcher = Dispatcher(
            accounts,
            gates,
            sender,
            deadline_s=timing.deadline_s,
            put=self._writer.put,
            slot_freed=self._slot_freed,
            fatal=self._fail,
            misfit=misfit,
            metrics=metrics,
            log=self._log,
        )
        self._loop = ClaimLoop(
            claims,
            Demands(gates, hold_s=timing.linger_s),
            self._writer,
            timing=timing,
            worker=worker,
            start=self._dispatcher.start,
            release=self._dispatcher.release,
            metrics=metrics,
            health=self._health,
            log=self._log,
        )

    @property
    def unstored(self) -> int:
        """Outcomes and attempts that only this process knows of."""
        return self._writer.pending + self._dispatcher.in_flight

    def stop(self) -> None:
        """Claim nothing more; `run` returns once everything that was learned is stored."""
        self._stopping.set()
        self._loop.rouse()

    async def hand_over(self, wakeups: Sequence[Wakeup]) -> None:
        """What Kafka announced."""
        accounts = {(wakeup.provider, wakeup.account) for wakeup in wakeups}
        created = any(wakeup.record_type == RecordType.ACTION_CREATED for wakeup in wakeups)
        self._loop.wake("kafka", accounts, promised=created)

    async def run(self, wakeups: Wakeups | None) -> int:
        """Run until stopped or broken; return the exit code."""
        self._health.expect_beats(LOOP)
        claiming = asyncio.create_task(self._loop.run(self._stopping), name="claims")
        writing = asyncio.create_task(self._writer.run(), name="outcomes")
        reading = asyncio.create_task(self._read(wakeups), name="kafka")
        stopped = asyncio.create_task(self._stopping.wait(), name="stop")
        await asyncio.wait((claiming, writing, reading, stopped), return_when=asyncio.FIRST_COMPLETED)
        self.stop()
        self._health.report("stopping", Readiness.NOT_READY, "no more claims; finishing what is in flight")
        self._log.info("stopping", in_flight=self._dispatcher.in_flight, outcomes=self._writer.pending)
        await self._ending.of(claiming)
        left = await self._dispatcher.drain(within_s=self._timing.deadline_s + DRAIN_SLACK_S)
        if left:
            self._log.error("attempts_abandoned", count=left, what_happens="their claims expire and become unknown")
        self._writer.close()
        await self._ending.of(writing)
        await self._ending.of(reading)
        stopped.cancel()
        self._log.info("stopped", outcomes_lost=self._writer.pending)
        return self._ending.exit_code

    async def _read(self, wakeups: Wakeups | None) -> None:
        meanwhile = f"dispatch goes on from the sweep, every {self._timing.sweep_s:g} s"
        await follow(wakeups, self._stopping, meanwhile=meanwhile, health=self._health, log=self._log)

    def _stored(self, batch: Sequence[Finished]) -> None:
        ordered = {finished.account for finished in batch if finished.ordered}
        if ordered:
            # The outcome may have released the next one of its ordering key.
            self._loop.wake("successor", ordered)
        if any(finished.outcome.event is Event.NO_EFFECT for finished in batch):
            self._loop.scheduled()

    def _slot_freed(self, account: AccountKey) -> None:
        self._loop.slot_freed(account)

    def _fail(self, error: Exception) -> None:
        self._ending.must_come(error)
        self.stop()
