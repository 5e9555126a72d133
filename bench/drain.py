"""One drain: a backlog is laid down, a worker started, and the time from the first request to the last result is taken.

The interpreter's start is measured apart. The provider counts what arrived; the database says what was stored.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from bench.ground import Database, Ground, TrialFailed, Worker
from bench.meters import Meters, load_average, rss_bytes
from bench.systems import System

DRAIN_MAX_S = 120.0
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Drain:
    """What one drain gave. Everything `_per_action` is divided by the actions that it covers."""

    system: str
    latency_ms: float
    workers: int
    actions: int
    seconds: float
    actions_per_s: float
    duplicates: int
    start_up_s: float
    """From starting the process to its first request."""
    cpu_s_per_1000: float
    worker_cpu_s_per_1000: float
    postgres_cpu_s_per_1000: float
    tx_per_action: float
    """Transactions of the worker; the agent's own commits are not in it."""
    wal_bytes_per_action: float
    """Enqueue and work together."""
    wal_bytes_of_work_per_action: float
    row_versions_per_action: float
    rss_mb: float
    load: float

    def as_dict(self) -> dict[str, object]:
        """For the report."""
        return asdict(self)


def drain(ground: Ground, system: System, *, actions: int, latency_ms: float = 0, workers: int = 1) -> Drain:
    """Measure in a fresh database."""
    with ground.database(system) as database:
        return drain_in(ground, database, actions=actions, latency_ms=latency_ms, workers=workers)


def drain_in(
    ground: Ground, database: Database, *, actions: int, latency_ms: float = 0, workers: int = 1, prefix: str = "k"
) -> Drain:
    """Measure in a database that is there already, with whatever is in it."""
    meters = Meters(database.dsn, ground.postmaster)
    ground.provider.reset(latency_ms)
    before = meters.read()
    database.errand("enqueue", str(actions), prefix)
    laid = meters.read()
    with ExitStack() as stack:
        started = [stack.enter_context(database.worker(f"worker-{number}")) for number in range(workers)]
        first_at = _first_request(ground, started)
        running, had = _read_all(meters, started), ground.provider.stats()["requests"]
        _until_stored(ground, database, meters, actions, started)
        stored_at = time.monotonic()
        ended = _read_all(meters, started)
        rss = sum(rss_bytes(worker.process) for worker in started)
        load = load_average()
    stats = ground.provider.stats()
    time.sleep(0.2)  # sessions report their last statistics when they end
    after = meters.read()
    meters.close()
    seconds, covered = stored_at - first_at, max(1.0, actions - had)
    worker_cpu, postgres_cpu = ended[0] - running[0], ended[1] - running[1]
    return Drain(
        system=database.system.name,
        latency_ms=latency_ms,
        workers=workers,
        actions=actions,
        seconds=seconds,
        actions_per_s=actions / seconds,
        duplicates=int(stats["requests"] - stats["distinct"]),
        start_up_s=first_at - started[0].started_at,
        cpu_s_per_1000=1000 * (worker_cpu + postgres_cpu) / covered,
        worker_cpu_s_per_1000=1000 * worker_cpu / covered,
        postgres_cpu_s_per_1000=1000 * postgres_cpu / covered,
        tx_per_action=max(0.0, (after - laid).transactions) / actions,
        wal_bytes_per_action=(after - before).wal_bytes / actions,
        wal_bytes_of_work_per_action=(after - laid).wal_bytes / actions,
        row_versions_per_action=(after - before).row_versions / actions,
        rss_mb=rss / workers / 2**20,
        load=load,
    )


def _first_request(ground: Ground, workers: list[Worker]) -> float:
    deadline = time.monotonic() + DRAIN_MAX_S
    while time.monotonic() < deadline:
        first_at = ground.provider.stats().get("first_at")
        if first_at is not None:
            return first_at
        time.sleep(POLL_S)
    raise TrialFailed(f"no request within {DRAIN_MAX_S:g} s: {workers[0].tail()}")


def _read_all(meters: Meters, workers: list[Worker]) -> tuple[float, float]:
    """CPU seconds of all workers, and of PostgreSQL."""
    readings = [meters.read(worker.process) for worker in workers]
    return sum(reading.worker_cpu_s for reading in readings), readings[-1].postgres_cpu_s


def _until_stored(ground: Ground, database: Database, meters: Meters, actions: int, workers: list[Worker]) -> None:
    deadline = time.monotonic() + DRAIN_MAX_S
    while ground.provider.stats()["distinct"] < actions:
        if time.monotonic() > deadline:
            seen = ground.provider.stats()
            raise TrialFailed(f"{database.system.name} is not done after {DRAIN_MAX_S:g} s: {seen} {workers[0].tail()}")
        time.sleep(POLL_S * 2)
    while meters.number(database.system.waiting) > 0:
        if time.monotonic() > deadline:
            raise TrialFailed(f"{database.system.name} has not stored all results: {workers[0].tail()}")
        time.sleep(POLL_S)
