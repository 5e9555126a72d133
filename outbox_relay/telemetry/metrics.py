"""The series that a process counts itself, by program. Names follow Prometheus: base units, `_total` on counters.

They start at zero with the process and are lost with it; what must add up over crashes is read from the ledger
(`ledger_series`). Labels are bounded: provider, account, and words from fixed lists.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata
from typing import TypeVar, cast

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

PROVIDER = ("provider",)
ATTEMPT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LAG_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
RESOLVE_BUCKETS_S = (1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
POLL_BUCKETS_S = (0.6, 1, 2, 5, 10, 60, 300)
BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


_Series = TypeVar("_Series", bound=MetricWrapperBase)


def child(metric: _Series, *labels: str) -> _Series:
    """`metric.labels(...)`, looked up once per set of labels: for what is counted with every action."""
    return cast(_Series, _child(metric, labels))


@lru_cache(maxsize=4096)
def _child(metric: MetricWrapperBase, labels: tuple[str, ...]) -> MetricWrapperBase:
    return metric.labels(*labels)


def release() -> str:
    """The installed version, or a mark that this is a checkout."""
    try:
        return metadata.version("outbox-relay")
    except metadata.PackageNotFoundError:
        return "0+checkout"


def new_registry(program: str) -> CollectorRegistry:
    """A registry with the process's own series and `outbox_build_info`; without the `_created` series."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    build = Info("outbox_build", "Version of the running program.", registry=registry)
    build.info({"version": release(), "program": program})
    return registry


class AttemptMetrics:
    """What every attempt at a provider counts, whoever makes it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.attempts = Counter(
            "outbox_dispatch_attempts",
            "Attempts at a provider, by what they proved: accepted, refused, no_effect, held, unknown, in_progress "
            "or mismatch.",
            ("provider", "account", "outcome"),
            registry=registry,
        )
        self.acceptances = Counter(
            "outbox_acceptances",
            "Provider acceptances, by evidence: response, late_response, replay, lookup or receipt.",
            ("provider", "evidence"),
            registry=registry,
        )
        self.rejections = Counter(
            "outbox_rejections", "Actions that the provider refused for good.", PROVIDER, registry=registry
        )
        self.unknown = Counter(
            "outbox_unknown",
            "Attempts that left an action in delivery_unknown, by the last transport phase.",
            ("provider", "phase"),
            registry=registry,
        )
        self.attempt_seconds = Histogram(
            "outbox_dispatch_duration_seconds",
            "Duration of one attempt at a provider.",
            PROVIDER,
            buckets=ATTEMPT_BUCKETS_S,
            registry=registry,
        )
        self.stale_writes = Counter(
            "outbox_stale_writes_refused",
            "Outcomes refused because the claim was no longer ours: fencing at work.",
            registry=registry,
        )
        self.wakeups = Counter(
            "outbox_wakeups",
            "What woke the loop: kafka, due, sweep, poll, freed (a slot) or successor (of an ordering key).",
            ("source",),
            registry=registry,
        )
        self.kafka_records = Counter(
            "outbox_kafka_records",
            "Records read from the status topic, by use: wakeup, other, old (skipped, the due scan has those) or "
            "unreadable.",
            ("use",),
            registry=registry,
        )
        self.poll_gap_seconds = Histogram(
            "outbox_kafka_poll_gap_seconds",
            "Time between two polls of the status topic; beyond max.poll.interval.ms the group takes the partitions.",
            buckets=POLL_BUCKETS_S,
            registry=registry,
        )
        self.ledger_failures = Counter(
            "outbox_ledger_failures",
            "Calls to the ledger that failed, by call.",
            ("call",),
            registry=registry,
        )


class RelayMetrics(AttemptMetrics):
    """The relay's own series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.claimed = Counter("outbox_claimed", "Actions claimed for dispatch.", PROVIDER, registry=registry)
        self.refused_claims = Counter(
            "outbox_refused_claims",
            "Claims that a record of a created action caused and that found nothing to do: it came twice, late, "
            "after another relay's claim, or for an action that is not due yet.",
            registry=registry,
        )
        self.released = Counter("outbox_released", "Claims given back unsent.", PROVIDER, registry=registry)
        self.expired_claims = Counter(
            "outbox_expired_claims", "Claims that ran out and became delivery_unknown.", registry=registry
        )
        self.in_flight = Gauge("outbox_in_flight", "Attempts under way.", ("provider", "account"), registry=registry)
        self.circuit_open = Gauge(
            "outbox_provider_circuit_open",
            "1 while the account's breaker keeps fresh actions back.",
            ("provider", "account"),
            registry=registry,
        )
        self.paused = Gauge(
            "outbox_provider_paused",
            "1 while the account waits as its provider asked it to (Retry-After).",
            ("provider", "account"),
            registry=registry,
        )
        self.due_to_claim_seconds = Histogram(
            "outbox_due_to_claim_seconds",
            "How long an action had been due when it was claimed.",
            PROVIDER,
            buckets=LAG_BUCKETS_S,
            registry=registry,
        )
        self.due_to_stored_seconds = Histogram(
            "outbox_due_to_acceptance_seconds",
            "From due to the stored acceptance of a first answer.",
            PROVIDER,
            buckets=LAG_BUCKETS_S,
            registry=registry,
        )
        self.outcome_batch = Histogram(
            "outbox_outcome_batch_size", "Outcomes per write.", buckets=BATCH_BUCKETS, registry=registry
        )
        self.outcomes_waiting = Gauge(
            "outbox_outcomes_waiting", "Outcomes known to this process and not stored yet.", registry=registry
        )


class ReconcilerMetrics(AttemptMetrics):
    """The reconciler's own series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.reconciliations = Counter(
            "outbox_reconciliations",
            "Unknown actions settled or passed on, by result: confirmed, failed, resend, cancelled, expired, "
            "review or postponed.",
            ("provider", "result"),
            registry=registry,
        )
        self.lookups = Counter(
            "outbox_lookups",
            "Questions to a provider, by answer: found, absent or inconclusive.",
            ("provider", "answer"),
            registry=registry,
        )
        self.reviews_opened = Counter(
            "outbox_reviews_opened", "Reviews handed to a person.", ("provider", "reason"), registry=registry
        )
        self.swept = Counter(
            "outbox_swept",
            "Actions that a sweep moved: expired_claim, deadline, redaction or history.",
            ("kind",),
            registry=registry,
        )
        self.connector_task_running = Gauge(
            "outbox_connector_task_running",
            "1 while the connector's task runs; only where OUTBOX_CONNECT_URL is set.",
            registry=registry,
        )
        self.unknown_to_resolved_seconds = Histogram(
            "outbox_unknown_to_resolved_seconds",
            "From delivery_unknown to its resolution.",
            PROVIDER,
            buckets=RESOLVE_BUCKETS_S,
            registry=registry,
        )
