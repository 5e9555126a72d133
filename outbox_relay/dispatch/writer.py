"""Stores outcomes: what each attempt proved, in the ledger's words.

What it must never do stands in `outbox_relay/program/writer.py`: drop one. Here is what is the relay's own: which call
stores them, what an outcome means that cannot be stored, and what is counted once they are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from outbox_relay.dispatch.demand import AccountKey
from outbox_relay.ledger.records import ActionId, Outcome, Recorded, Verdict
from outbox_relay.program.writer import BatchWriter
from outbox_relay.states import Event
from outbox_relay.telemetry import Health, Logger, RelayMetrics, child
from outbox_relay.values import value

BATCH_MAX = 100
"""Outcomes in one write: half of what may be in flight, so that the rest is being sent meanwhile."""
STALL_MAX_S = 2.0
"""An outcome that waits longer than this, or a quarter of the lease, stops claiming until it is stored."""


class OutcomeStore(Protocol):
    """The part of the ledger that takes outcomes."""

    async def record(self, outcomes: Sequence[Outcome]) -> list[Recorded]:
        """Store a batch in one transaction."""


@value
class Finished:
    """An outcome on its way to the ledger, with what is needed once it is there."""

    outcome: Outcome
    account: AccountKey
    ordered: bool
    """True when the action has an ordering key, so that storing it may release a successor."""
    due_age_s: float
    claimed_at: float
    """Monotonic seconds."""


Stored = Callable[[Sequence[Finished]], None]


class OutcomeWriter(BatchWriter[Finished]):
    """The relay's writer. While it cannot store, nothing may be claimed."""

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
        super().__init__(
            "outcome",
            failures=metrics.ledger_failures.labels("record_outcomes"),
            health=health,
            log=log,
            batch_max=BATCH_MAX,
            linger_s=linger_s,
            stall_s=min(STALL_MAX_S, lease_s / 4),
        )
        self._store = store
        self._fatal = fatal
        self._metrics = metrics
        self._log = log
        self._on_stored = on_stored
        metrics.outcomes_waiting.set_function(lambda: self.pending)

    async def store(self, part: Sequence[Finished]) -> list[Recorded]:
        """Record the outcomes."""
        return await self._store.record([finished.outcome for finished in part])

    def action_of(self, item: Finished) -> ActionId:
        """A claim has one outcome, and an action one claim at a time."""
        return item.outcome.action_id

    def plainer(self, item: Finished) -> Finished:
        """The event alone."""
        return replace(item, outcome=replace(item.outcome, evidence=None, message=None))

    def given_up(self, item: Finished, error: Exception) -> None:
        """An outcome that the ledger refuses even so is a bug of ours: the program ends, once the others are stored."""
        what_happens = "its claim runs out and it becomes unknown"
        self._log.error("outcome_given_up", action_id=str(self.action_of(item)), what_happens=what_happens)
        self._fatal(error)

    def stored(self, batch: Sequence[Finished], recorded: Sequence[Recorded], *, repeated: bool) -> None:
        """Count them, and tell the loop whose successors are free."""
        self._metrics.outcome_batch.observe(len(batch))
        # After a lost answer our own first write makes the second one stale: that is no claim lost.
        self._count([] if repeated else batch, recorded)
        self._on_stored(batch)

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
