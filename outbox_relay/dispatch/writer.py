"""Stores outcomes, many per write, until they are stored.

An outcome says what the world already did, so it is never dropped: not by a dead ledger, not by a shutdown, not by one
outcome that cannot be stored beside others. While it cannot store, it says so, and nothing new may be claimed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from outbox_relay.dispatch.demand import AccountKey
from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.records import Outcome, Recorded, Verdict
from outbox_relay.states import Event
from outbox_relay.telemetry import Health, Logger, Readiness, RelayMetrics, child, describe_error

BATCH_MAX = 100
"""Outcomes in one write: half of what may be in flight, so that the rest is being sent meanwhile."""
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
STALL_MAX_S = 2.0
"""An outcome that waits longer than this, or a quarter of the lease, stops claiming until it is stored."""
WRITE_MAX_S = 15.0
"""A connection that neither answers nor breaks is given up after this; longer than the ledger's statement timeout."""


class OutcomeStore(Protocol):
    """The part of the ledger that takes outcomes."""

    async def record(self, outcomes: Sequence[Outcome]) -> list[Recorded]:
        """Store a batch in one transaction."""


@dataclass(frozen=True, slots=True)
class Finished:
    """An outcome on its way to the ledger, with what is needed once it is there."""

    outcome: Outcome
    account: AccountKey
    ordered: bool
    """True when the action has an ordering key, so that storing it may release a successor."""
    due_age_s: float
    claimed_at: float
    """Monotonic seconds."""
    known_at: float
    """Monotonic seconds."""


Stored = Callable[[Sequence[Finished]], None]


class OutcomeWriter:
    """One queue, one write at a time; what arrives during a write is the next one."""

    def __init__(
        self,
        store: OutcomeStore,
        *,
        linger_s: float,
        lease_s: float,
        fatal: Callable[[Exception], None],
        metrics: RelayMetrics,
        health: Health,
        log: Logger,
        on_stored: Stored,
    ) -> None:
        self._store = store
        self._linger_s = linger_s
        self._stall_s = min(STALL_MAX_S, lease_s / 4)
        self._fatal = fatal
        self._metrics = metrics
        self._health = health
        self._log = log
        self._on_stored = on_stored
        self._waiting: deque[Finished] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._failing = False

    @property
    def pending(self) -> int:
        """Outcomes that are known here and nowhere else."""
        return len(self._waiting)

    @property
    def storing(self) -> bool:
        """False while outcomes cannot be stored: claim nothing then."""
        return not self._failing and not (self._waiting and self._age_s() > self._stall_s)

    def _age_s(self) -> float:
        """How long the oldest outcome has been waiting."""
        return time.monotonic() - self._waiting[0].known_at

    def put(self, finished: Finished) -> None:
        """Queue an outcome. Never waits: what has happened cannot be refused."""
        self._waiting.append(finished)
        self._metrics.outcomes_waiting.set(len(self._waiting))
        self._arrived.set()

    def close(self) -> None:
        """No more outcomes will come: `run` returns once all are stored."""
        self._closing = True
        self._arrived.set()

    async def run(self) -> None:
        """Store until closed and empty."""
        while self._waiting or not self._closing:
            await self._arrived.wait()
            if len(self._waiting) < BATCH_MAX and not self._closing and self._linger_s:
                await asyncio.sleep(self._linger_s)
            if self._waiting:
                await self._write()
            if not self._waiting and not self._closing:
                self._arrived.clear()

    async def _write(self) -> None:
        batch = [self._waiting[index] for index in range(min(BATCH_MAX, len(self._waiting)))]
        recorded, repeated = await self._until_stored(batch)
        for _ in batch:
            self._waiting.popleft()
        self._metrics.outcomes_waiting.set(len(self._waiting))
        self._metrics.outcome_batch.observe(len(batch))
        # After a lost answer our own first write makes the second one stale: that is no claim lost.
        self._count([] if repeated else batch, recorded)
        self._on_stored(batch)

    async def _until_stored(self, batch: Sequence[Finished]) -> tuple[list[Recorded], bool]:
        delay_s = RETRY_FIRST_S
        repeated = False
        while True:
            try:
                async with asyncio.timeout(WRITE_MAX_S):
                    recorded = await self._record(batch)
            except (LedgerUnavailable, TimeoutError) as error:
                self._failed(error)
                repeated = True
                await asyncio.sleep(delay_s)
                delay_s = min(RETRY_MAX_S, delay_s * 2)
                continue
            self._succeeded()
            return recorded, repeated

    async def _record(self, batch: Sequence[Finished]) -> list[Recorded]:
        outcomes = [finished.outcome for finished in batch]
        try:
            return await self._store.record(outcomes)
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - one outcome must not keep the others from being stored
            self._log.error("batch_refused", error=describe_error(error), size=len(outcomes))
            return [recorded for outcome in outcomes for recorded in await self._record_alone(outcome)]

    async def _record_alone(self, outcome: Outcome) -> list[Recorded]:
        try:
            return await self._store.record([outcome])
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the state must be stored even when its details cannot be
            self._log.error("outcome_refused", action_id=str(outcome.action_id), error=describe_error(error))
        try:
            return await self._store.record([replace(outcome, evidence=None, message=None)])
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the others first; then the program ends
            what_happens = "its claim runs out and it becomes unknown"
            self._log.error("outcome_given_up", action_id=str(outcome.action_id), what_happens=what_happens)
            self._fatal(error)
            return []

    def _failed(self, error: LedgerUnavailable | TimeoutError) -> None:
        self._metrics.ledger_failures.labels("record_outcomes").inc()
        if not self._failing:
            self._log.error("outcomes_not_storable", error=describe_error(error), waiting=len(self._waiting))
        self._failing = True
        self._health.report(
            "outcomes",
            Readiness.NOT_READY,
            f"{len(self._waiting)} outcomes wait to be stored; nothing is claimed meanwhile",
            "make the ledger writable again; this process keeps the outcomes and stores them then: do not kill it",
        )

    def _succeeded(self) -> None:
        if self._failing:
            self._log.info("outcomes_storable_again")
        self._failing = False
        self._health.report("outcomes", Readiness.READY, "outcomes are stored as they come")

    def _count(self, batch: Sequence[Finished], recorded: Sequence[Recorded]) -> None:
        verdicts = {answer.action_id: answer.verdict for answer in recorded}
        now = time.monotonic()
        for finished in batch:
            if verdicts.get(finished.outcome.action_id) is not Verdict.STALE:
                if finished.outcome.event is Event.ACCEPTED:
                    lag_s = finished.due_age_s + now - finished.claimed_at
                    child(self._metrics.due_to_stored_seconds, finished.account[0]).observe(lag_s)
            else:
                self._metrics.stale_writes.inc()
                self._log.warning(
                    "claim_lost",
                    action_id=str(finished.outcome.action_id),
                    finding=str(finished.outcome.event),
                    what_happens="the state is not changed; an acceptance is kept as evidence",
                )
