"""Wake-ups from Kafka, for either program, and what /readyz says of them.

They only say that a look at the ledger is worth while: without Kafka a program goes on from due times and sweeps, so
trouble here makes it degraded and never unready.
"""

from __future__ import annotations

import asyncio

from outbox_relay.capture.wakeups import HandOver, Wakeups
from outbox_relay.settings import Settings
from outbox_relay.settings import Wakeups as WakeupSource
from outbox_relay.telemetry import AttemptMetrics, Health, Logger, Readiness

OLD_AFTER_SWEEPS = 3
"""Records older than this many sweeps are skipped: the sweep, or the due list, has their actions already."""
CHECK_S = 0.5


def wakeups_for(
    settings: Settings,
    *,
    group_id: str,
    record_types: frozenset[str],
    hand_over: HandOver,
    metrics: AttemptMetrics,
) -> Wakeups | None:
    """The consumer that wakes a program; None when the ledger is polled. Raises SettingsError without brokers."""
    if settings.wakeups is not WakeupSource.KAFKA:
        return None
    return Wakeups(
        bootstrap_servers=settings.needed_bootstrap_servers(),
        group_id=settings.kafka_group_id or group_id,
        topic=settings.topic,
        record_types=record_types,
        hand_over=hand_over,
        max_age_s=OLD_AFTER_SWEEPS * settings.sweep_s,
        options=settings.kafka_options,
        on_records=lambda use, count: metrics.kafka_records.labels(use).inc(count),
        on_poll=metrics.poll_gap_seconds.observe,
    )


async def follow(
    wakeups: Wakeups | None, stopping: asyncio.Event, *, meanwhile: str, health: Health, log: Logger
) -> None:
    """Read wake-ups until told to stop and keep readiness told: `meanwhile` says what goes on without them."""
    if wakeups is None:
        health.report("kafka", Readiness.READY, "not used: the ledger is polled (OUTBOX_WAKEUPS=ledger)")
        await stopping.wait()
        return
    reading = asyncio.create_task(wakeups.run(stopping), name="kafka-consumer")
    while not reading.done():
        _tell(wakeups.trouble, meanwhile=meanwhile, health=health, log=log)
        await asyncio.wait((reading,), timeout=CHECK_S)
    await reading


def _tell(trouble: str | None, *, meanwhile: str, health: Health, log: Logger) -> None:
    before = health.readiness_of("kafka")
    if trouble is None:
        health.report("kafka", Readiness.READY, "wake-ups arrive")
        if before is not Readiness.READY:
            log.info("kafka_ready")
        return
    health.report(
        "kafka",
        Readiness.DEGRADED,
        f"{trouble}; {meanwhile}",
        "check OUTBOX_KAFKA_BOOTSTRAP_SERVERS, the brokers and the topic; nothing is lost meanwhile",
    )
    if before is Readiness.READY:
        log.warning("kafka_degraded", trouble=trouble)
