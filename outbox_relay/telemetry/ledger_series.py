"""The series that are read from the ledger, exported by one program only (the reconciler), never by each relay.

`outbox_actions_created_total` and `outbox_actions` come from one database snapshot, so that created equals the sum of
all states in every scrape. Nothing here talks to the database: the owner of the loop hands snapshots over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from outbox_relay.states import STATES, ExecutionState, ReceiptState, State


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """One provider's part of a snapshot."""

    created: int
    states: dict[State, int]
    receipts: dict[ReceiptState, int] = field(default_factory=dict)
    awaiting_review: int = 0
    duplicates_suspected: int = 0
    due: int = 0
    oldest_due_age_s: float = 0.0
    oldest_unknown_age_s: float = 0.0
    window_min_remaining_s: float | None = None
    """Shortest time in which an unknown of this provider can still be replayed safely; None when there is none."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """All counts by provider, taken in one database snapshot."""

    providers: dict[str, ProviderCounts]


def state_label(state: State) -> str:
    """One word per state: what is known once dispatch has finished, else what we did."""
    finished = state.execution is ExecutionState.DISPATCH_FINISHED
    return str(state.delivery if finished else state.execution)


class LedgerSeries(Collector):
    """Exports the last snapshot; silent before the first one, so that no zero is shown that nobody counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._snapshot: LedgerSnapshot | None = None
        self._taken_at = 0.0
        registry.register(self)

    def show(self, snapshot: LedgerSnapshot) -> None:
        """Replace the exported snapshot."""
        self._snapshot = snapshot
        self._taken_at = time.monotonic()

    def describe(self) -> Iterator[Metric]:
        """The families, empty: registration must not need a snapshot."""
        yield from self._families(LedgerSnapshot({}), 0.0)

    def collect(self) -> Iterator[Metric]:
        """The families of the last snapshot."""
        if self._snapshot is not None:
            yield from self._families(self._snapshot, time.monotonic() - self._taken_at)

    def _families(self, snapshot: LedgerSnapshot, age_s: float) -> Iterator[Metric]:
        created = CounterMetricFamily("outbox_actions_created", "Actions that agents committed.", labels=["provider"])
        actions = GaugeMetricFamily("outbox_actions", "Actions by state.", labels=["provider", "state"])
        receipts = GaugeMetricFamily("outbox_receipts", "Actions by receipt.", labels=["provider", "receipt"])
        review = GaugeMetricFamily(
            "outbox_awaiting_review", "Actions that wait for a person's decision.", labels=["provider"]
        )
        suspected = GaugeMetricFamily(
            "outbox_duplicates_suspected", "Actions whose evidence contradicts their state.", labels=["provider"]
        )
        backlog = GaugeMetricFamily("outbox_backlog", "Actions due and not claimed.", labels=["provider"])
        due_age = GaugeMetricFamily(
            "outbox_oldest_due_age_seconds", "Age of the longest due action.", labels=["provider"]
        )
        unknown_age = GaugeMetricFamily(
            "outbox_unknown_oldest_age_seconds", "Age of the oldest delivery_unknown.", labels=["provider"]
        )
        window = GaugeMetricFamily(
            "outbox_idempotency_window_min_remaining_seconds",
            "Shortest time in which an unknown can still be replayed safely.",
            labels=["provider"],
        )
        age = GaugeMetricFamily("outbox_ledger_snapshot_age_seconds", "Age of the series read from the ledger.", age_s)
        for provider, counts in snapshot.providers.items():
            created.add_metric([provider], counts.created)
            for state in STATES:
                actions.add_metric([provider, state_label(state)], counts.states.get(state, 0))
            for receipt in ReceiptState:
                receipts.add_metric([provider, receipt], counts.receipts.get(receipt, 0))
            review.add_metric([provider], counts.awaiting_review)
            suspected.add_metric([provider], counts.duplicates_suspected)
            backlog.add_metric([provider], counts.due)
            due_age.add_metric([provider], counts.oldest_due_age_s)
            unknown_age.add_metric([provider], counts.oldest_unknown_age_s)
            if counts.window_min_remaining_s is not None:
                window.add_metric([provider], counts.window_min_remaining_s)
        yield from (created, actions, receipts, review, suspected, backlog, due_age, unknown_age, window, age)
