"""Latency at a steady rate onto an idle worker: from the commit's return to the arrival, and to the stored acceptance.

All processes share one machine, so their monotonic clocks are one. Also measures what the worker costs while idle.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil

from bench.ground import Database, Ground, TrialFailed, Worker
from bench.meters import Meters, load_average, rss_bytes
from bench.systems import System

RATE_PER_S = 100
WARM_UP_S = 2.0
SETTLE_S = 1.5
IDLE_S = 5.0
CATCH_UP_S = 30.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """In milliseconds."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Quantiles:
        """Nearest-rank quantiles. Raises TrialFailed when there is nothing."""
        if not seconds:
            raise TrialFailed("no latencies were seen")
        ordered = sorted(seconds)
        return cls(*(1000 * ordered[max(0, ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9, 0.99)))


@dataclass(frozen=True, slots=True)
class Latency:
    """What one run gave."""

    system: str
    rate_per_s: float
    seconds: float
    arrival_ms: Quantiles
    stored_ms: Quantiles | None
    """None for the loop that stores nothing."""
    idle_cpu_percent: float
    """Of one core, over IDLE_S with nothing to do."""
    idle_rss_mb: float
    load: float

    def as_dict(self) -> dict[str, object]:
        """For the report."""
        return asdict(self)


def measure_latency(ground: Ground, system: System, *, seconds: float, rate: float = RATE_PER_S) -> Latency:
    """Measure in a fresh database."""
    with ground.database(system) as database, database.worker() as worker:
        worker.wait_for(system.ready_event)
        ground.provider.reset()
        database.errand("load", str(rate), str(WARM_UP_S), "warm")
        return latency_in(ground, database, worker, seconds=seconds, rate=rate)


def latency_in(ground: Ground, database: Database, worker: Worker, *, seconds: float, rate: float) -> Latency:
    """Measure with a worker that runs already."""
    idle_cpu_percent, idle_rss_mb = _idle(worker)
    ground.provider.reset()
    committed: dict[str, float] = json.loads(database.errand("load", str(rate), str(seconds), "lat"))
    load = load_average()
    stored: dict[str, float] = {}
    if database.system.arrives_at == "provider":
        stored = _when_all_stored(database, ground, committed)
        arrivals = ground.provider.arrivals()
    else:
        arrivals = _at_consumer(database, worker, ground)
    return Latency(
        system=database.system.name,
        rate_per_s=rate,
        seconds=seconds,
        arrival_ms=Quantiles.of(delays(committed, arrivals)),
        stored_ms=Quantiles.of(delays(committed, stored)) if stored else None,
        idle_cpu_percent=idle_cpu_percent,
        idle_rss_mb=idle_rss_mb,
        load=load,
    )


def delays(began: Mapping[str, float], ended: Mapping[str, float]) -> list[float]:
    """How long each took. One that never ended is an error of the measurement, not a fast one."""
    missing = began.keys() - ended.keys()
    if missing:
        raise TrialFailed(f"{len(missing)} of {len(began)} never arrived, such as {min(missing)}")
    # A worker that is woken by NOTIFY may be faster than the commit's return to the agent.
    return [max(0.0, ended[key] - at) for key, at in began.items()]


def _idle(worker: Worker) -> tuple[float, float]:
    time.sleep(SETTLE_S)
    before, began = worker.process.cpu_times(), time.monotonic()
    time.sleep(IDLE_S)
    after, took = worker.process.cpu_times(), time.monotonic() - began
    spent = after.user + after.system - before.user - before.system
    return 100 * spent / took, rss_bytes(worker.process) / 2**20


def _when_all_stored(database: Database, ground: Ground, committed: Mapping[str, float]) -> dict[str, float]:
    """Monotonic seconds at which each result was stored, from the database's clock, which is this machine's."""
    deadline = time.monotonic() + CATCH_UP_S
    meters = Meters(database.dsn, ground.postmaster)
    while meters.number(database.system.waiting) > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    offset = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
    rows = meters.ask(database.system.stored)
    meters.close()
    return {str(key): float(str(at)) - offset for key, at in rows if key in committed}


def _at_consumer(database: Database, worker: Worker, ground: Ground) -> dict[str, float]:
    """The bare consumer knows action ids; the ledger knows which keys they belong to."""
    time.sleep(1.0)
    worker.stop()
    arrivals = worker.said("arrivals")["arrivals"]
    if not isinstance(arrivals, dict):
        raise TrialFailed("the consumer told no arrivals")
    meters = Meters(database.dsn, ground.postmaster)
    rows = meters.ask("select action_id::text, idempotency_key from outbox.outbound_actions")
    meters.close()
    return {str(key): float(arrivals[str(action)]) for action, key in rows if str(action) in arrivals}
