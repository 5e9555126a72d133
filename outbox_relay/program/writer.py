"""Stores what a program has learned, many items per write, until it is stored.

What is learned says what the world already did, so it is never dropped: not by a dead ledger, not by a shutdown, not by
one item that cannot be stored beside others. While it cannot store, it says so, and nothing new may be claimed. If the
process dies, the claims of what was not stored run out, and the ledger calls them unknown.
"""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Generic, TypeVar

from prometheus_client import Counter

from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.records import ActionId, Recorded
from outbox_relay.telemetry import Health, Logger, Readiness, describe_error
from outbox_relay.values import value

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
WRITE_MAX_S = 15.0
"""A connection that neither answers nor breaks is given up after this; longer than the ledger's statement timeout."""

T = TypeVar("T")


@value
class Entry(Generic[T]):
    """An item in the queue."""

    item: T
    known_at: float
    """Monotonic seconds."""


class BatchWriter(ABC, Generic[T]):
    """One queue and one write at a time; what arrives meanwhile is the next batch.

    Items keep their order, and two of one action are never in the same batch.
    What the items are, and what one means that the ledger refuses, the program says by the abstract methods.
    """

    def __init__(
        self,
        noun: str,
        *,
        failures: Counter,
        health: Health,
        log: Logger,
        batch_max: int,
        linger_s: float,
        stall_s: float = math.inf,
    ) -> None:
        """`noun` names one item, in logs and on /readyz; an item older than `stall_s` counts as one that fails."""
        self._noun = noun
        self._failures = failures
        self._health = health
        self._log = log
        self._batch_max = batch_max
        self._linger_s = linger_s
        self._stall_s = stall_s
        self._waiting: deque[Entry[T]] = deque()
        self._being_written: list[Entry[T]] = []
        self._bell = asyncio.Event()
        self._closing = False
        self._failing = False

    @abstractmethod
    async def store(self, part: Sequence[T]) -> list[Recorded]:
        """Store a part in one transaction. Raises LedgerUnavailable when it may succeed later."""

    @abstractmethod
    def action_of(self, item: T) -> ActionId:
        """Whose item it is."""

    @abstractmethod
    def plainer(self, item: T) -> T:
        """The same without what may have made the ledger refuse it: its meaning must be stored, details need not."""

    @abstractmethod
    def given_up(self, item: T, error: Exception) -> None:
        """The ledger refused it alone and plain; the others go on."""

    @abstractmethod
    def stored(self, batch: Sequence[T], recorded: Sequence[Recorded], *, repeated: bool) -> None:
        """A batch is in the ledger; `repeated` when an answer was lost, so that our own first write may be in it."""

    def parts(self, batch: Sequence[T]) -> list[Sequence[T]]:
        """What is stored by one call each, in this order; a part that fails is repeated alone."""
        return [batch]

    @property
    def pending(self) -> int:
        """Items that are known here and nowhere else."""
        return len(self._waiting) + len(self._being_written)

    @property
    def storing(self) -> bool:
        """False while items cannot be stored: claim nothing then."""
        return not self._failing and self._age_s() <= self._stall_s

    def _age_s(self) -> float:
        """How long the oldest item has been here."""
        oldest = next(chain(self._being_written, self._waiting), None)
        return time.monotonic() - oldest.known_at if oldest else 0.0

    def put(self, item: T) -> None:
        """Queue an item. Never waits: what has happened cannot be refused."""
        self._waiting.append(Entry(item, time.monotonic()))
        self._bell.set()

    def close(self) -> None:
        """No more items will come: `run` returns once all are stored."""
        self._closing = True
        self._bell.set()

    async def run(self) -> None:
        """Store until closed and empty."""
        while self._waiting or not self._closing:
            await self._bell.wait()
            if len(self._waiting) < self._batch_max and not self._closing and self._linger_s:
                await asyncio.sleep(self._linger_s)
            if self._waiting:
                self._being_written = self._take()
                await self._write([entry.item for entry in self._being_written])
            else:
                self._bell.clear()

    def _take(self) -> list[Entry[T]]:
        batch: list[Entry[T]] = []
        actions: set[ActionId] = set()
        while self._waiting and len(batch) < self._batch_max:
            action_id = self.action_of(self._waiting[0].item)
            if action_id in actions:
                break
            actions.add(action_id)
            batch.append(self._waiting.popleft())
        return batch

    async def _write(self, batch: Sequence[T]) -> None:
        recorded: list[Recorded] = []
        repeated = False
        for part in self.parts(batch):
            answers, again = await self._until_stored(part)
            recorded += answers
            repeated |= again
        self._being_written = []
        self.stored(batch, recorded, repeated=repeated)

    async def _until_stored(self, part: Sequence[T]) -> tuple[list[Recorded], bool]:
        delay_s = RETRY_FIRST_S
        repeated = False
        while True:
            try:
                async with asyncio.timeout(WRITE_MAX_S):
                    recorded = await self._together_or_alone(part)
            except (LedgerUnavailable, TimeoutError) as error:
                self._failed(error)
                repeated = True
                await asyncio.sleep(delay_s)
                delay_s = min(RETRY_MAX_S, delay_s * 2)
                continue
            self._succeeded()
            return recorded, repeated

    async def _together_or_alone(self, part: Sequence[T]) -> list[Recorded]:
        try:
            return await self.store(part)
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - one item must not keep the others from being stored
            self._log.error("batch_refused", error=describe_error(error), size=len(part))
            return [recorded for item in part for recorded in await self._alone(item)]

    async def _alone(self, item: T) -> list[Recorded]:
        try:
            return await self.store([item])
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - its meaning must be stored even when its details cannot be
            action_id = str(self.action_of(item))
            self._log.error(f"{self._noun}_refused", action_id=action_id, error=describe_error(error))
        try:
            return await self.store([self.plainer(item)])
        except (LedgerUnavailable, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the others first; the program decides what this means
            self.given_up(item, error)
            return []

    def _failed(self, error: LedgerUnavailable | TimeoutError) -> None:
        self._failures.inc()
        if not self._failing:
            self._log.error(f"{self._noun}s_not_storable", error=describe_error(error), waiting=self.pending)
        self._failing = True
        self._health.report(
            f"{self._noun}s",
            Readiness.NOT_READY,
            f"{self.pending} {self._noun}s wait to be stored; nothing is claimed meanwhile",
            f"make the ledger writable again; this process keeps the {self._noun}s and stores them then: "
            "do not kill it",
        )

    def _succeeded(self) -> None:
        if self._failing:
            self._failing = False
            self._log.info(f"{self._noun}s_storable_again")
        self._health.report(f"{self._noun}s", Readiness.READY, f"{self._noun}s are stored as they come")
