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
from outbox_relay.errors import OutboxError
from outbox_relay.providers.accounts import Account
from outbox_relay.states import Event, RecordType
from outbox_relay.telemetry import Health, Logger, Readiness, RelayMetrics, log_failure

WAKING_RECORDS = frozenset({RecordType.ACTION_CREATED.value, RecordType.RETRY_SCHEDULED.value})
DRAIN_SLACK_S = 2.0
"""Beyond the deadline that every attempt has: for classifying and for a slow machine."""
KAFKA_CHECK_S = 0.5


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
        self._failure: Exception | None = None
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
        await self._ended(claiming)
        left = await self._dispatcher.drain(within_s=self._timing.deadline_s + DRAIN_SLACK_S)
        if left:
            self._log.error("attempts_abandoned", count=left, what_happens="their claims expire and become unknown")
        self._writer.close()
        await self._ended(writing)
        await self._ended(reading)
        stopped.cancel()
        self._log.info("stopped", outcomes_lost=self._writer.pending)
        return self._exit_code()

    async def _read(self, wakeups: Wakeups | None) -> None:
        """Read wake-ups and keep readiness told; without Kafka only wait for the end."""
        if wakeups is None:
            self._health.report("kafka", Readiness.READY, "not used: the ledger is polled (OUTBOX_WAKEUPS=ledger)")
            await self._stopping.wait()
            return
        reading = asyncio.create_task(wakeups.run(self._stopping), name="kafka-consumer")
        while not reading.done():
            self._tell_kafka(wakeups.trouble)
            await asyncio.wait((reading,), timeout=KAFKA_CHECK_S)
        await reading

    def _tell_kafka(self, trouble: str | None) -> None:
        before = self._health.readiness_of("kafka")
        if trouble is None:
            self._health.report("kafka", Readiness.READY, "wake-ups arrive")
            if before is not Readiness.READY:
                self._log.info("kafka_ready")
            return
        self._health.report(
            "kafka",
            Readiness.DEGRADED,
            f"{trouble}; dispatch goes on from the sweep, every {self._timing.sweep_s:g} s",
            "check OUTBOX_KAFKA_BOOTSTRAP_SERVERS, the brokers and the topic; nothing is lost meanwhile",
        )
        if before is Readiness.READY:
            self._log.warning("kafka_degraded", trouble=trouble)

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
        if self._failure is None:
            log_failure(self._log, "must_stop", error)
        self._failure = self._failure or error
        self.stop()

    async def _ended(self, task: asyncio.Task[None]) -> None:
        """Wait for a loop's end; what it died of makes the exit code."""
        try:
            await task
        except Exception as error:  # noqa: BLE001 - the other loops must still end in good order
            log_failure(self._log, "loop_failed", error)
            self._failure = self._failure or error

    def _exit_code(self) -> int:
        if self._failure is None:
            return 0
        return self._failure.exit_code if isinstance(self._failure, OutboxError) else 1
