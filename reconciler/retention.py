"""Keeps the ledger as long as the settings say: payloads and recipients go first, events and evidence later.

Walks from the oldest action to the age limit in bounded steps, rests, and walks again. What is exempt and what may go
is decided by the ledger's functions alone; a restart walks from the beginning and finds nothing to do twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from outbox_relay.ledger.retention import Pass
from outbox_relay.telemetry import Logger, ReconcilerMetrics
from reconciler.loop import CALL_MAX_S

BATCH = 500
BATCHES_PER_TURN = 4
REST_S = 600.0
"""How long a walk that reached the age limit rests before the next one: nothing gets older than a day in that time."""


@dataclass(frozen=True, slots=True)
class RetentionTerms:
    """How many days after its last change an action is redacted, and its history deleted; 0 means never."""

    redact_after_days: int
    events_retention_days: int


class RetentionStore(Protocol):
    """The part of the ledger that forgets."""

    async def redact(self, days: int, *, after: datetime | None = None, limit: int = 500) -> Pass:
        """Remove payloads and recipients."""

    async def delete_history(
        self, days: int, *, redacted_days: int, after: datetime | None = None, limit: int = 500
    ) -> Pass:
        """Delete events and evidence."""


@dataclass(slots=True)
class Walk:
    """One kind of forgetting, and how far it got."""

    kind: str
    step: Callable[[datetime | None], Awaitable[Pass]]
    after: datetime | None = None
    not_before_s: float = field(default=0.0)


class Retainer:
    """Takes a few steps of every walk per turn."""

    def __init__(
        self,
        store: RetentionStore,
        terms: RetentionTerms,
        *,
        metrics: ReconcilerMetrics,
        log: Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._walks: list[Walk] = []
        redact, events = terms.redact_after_days, terms.events_retention_days
        if redact:
            self._walks.append(Walk("redaction", lambda after: store.redact(redact, after=after, limit=BATCH)))
        if redact and events:
            self._walks.append(
                Walk(
                    "history",
                    lambda after: store.delete_history(events, redacted_days=events - redact, after=after, limit=BATCH),
                )
            )

    async def turn(self) -> None:
        """A few steps of each walk that does not rest. Raises LedgerUnavailable."""
        for walk in self._walks:
            if self._clock() >= walk.not_before_s:
                await self._go(walk)

    async def _go(self, walk: Walk) -> None:
        changed = 0
        for _ in range(BATCHES_PER_TURN):
            async with asyncio.timeout(CALL_MAX_S):
                step = await walk.step(walk.after)
            changed += step.changed
            walk.after = step.looked_until
            if walk.after is None:
                walk.not_before_s = self._clock() + REST_S
                break
        if changed:
            self._metrics.swept.labels(walk.kind).inc(changed)
            self._log.info("forgotten", kind=walk.kind, count=changed)
