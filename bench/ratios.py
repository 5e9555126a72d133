"""From measurements to the ratios that were promised, each with its target. Pure: no clock, no server.

A ratio is that of the medians of at least three interleaved rounds; a missing measurement gives None, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Measurement = Mapping[str, object]
CAP_AT_50_MS = 4_000
"""200 in flight at 50 ms."""
PYTHON_PEERS = ("pgqueuer", "procrastinate", "dbos")


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure over the rounds."""

    low: float
    middle: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """For the report."""
        return {"min": self.low, "median": self.middle, "max": self.high}


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio must reach."""

    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float) -> bool:
        """True when the value is on the right side."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


TARGETS = {
    "ledger_vs_limit": Target(at_least=0.8),
    "ledger_vs_limit_own": Target(at_least=0.8),
    "ledger_vs_best_python_peer": Target(at_least=3),
    "ledger_vs_river": Target(at_least=0.8),
    "kafka_vs_ledger": Target(at_least=0.4),
    "t50_vs_cap": Target(at_least=0.85),
    "kafka_p50_vs_raw_cdc": Target(at_most=1.3),
    "kafka_p99_vs_raw_cdc": Target(at_most=2),
    "tx_per_action": Target(at_most=0.1),
    "wal_vs_limit": Target(at_most=1.5),
    "cpu_vs_limit": Target(at_most=1.5),
    "grown_1m_vs_empty": Target(at_least=0.9),
    "grown_10m_vs_empty": Target(at_least=0.9),
    "snapshot_held_vs_free": Target(at_least=0.8),
    "neighbour_p99_ratio": Target(at_most=1.2),
    "ledger_p50_vs_river": Target(at_most=1),
    "ledger_p99_vs_limit": Target(at_most=3),
    "two_relays_vs_one": Target(at_least=1.2),
    "ledger_vs_limit_raw": Target(at_least=0.5),
    "idle_cpu_percent": Target(at_most=1),
    "idle_rss_mb": Target(at_most=120),
    "memory_growth": Target(at_most=1.1),
}


def number_at(measurement: Measurement, path: str) -> float | None:
    """The number at a dotted path, such as arrival_ms.p50; None when there is none."""
    found: object = measurement
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def spread(measurements: Iterable[Measurement], path: str, **where: object) -> Spread | None:
    """Min, median and max of a figure over the measurements that match; None when there are none."""
    chosen = [one for one in measurements if all(one.get(name) == value for name, value in where.items())]
    values = [value for one in chosen if (value := number_at(one, path)) is not None]
    return Spread(min(values), median(values), max(values)) if values else None


def over(above: Spread | None, below: Spread | None) -> float | None:
    """The ratio of two medians."""
    if above is None or below is None or below.middle == 0:
        return None
    return above.middle / below.middle


def ratios(
    drains: Sequence[Measurement], latencies: Sequence[Measurement], growth: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Every ratio of TARGETS by name. `growth` brings those that its scenarios measured."""

    def rate(system: str, latency_ms: float = 0) -> Spread | None:
        return spread(drains, "actions_per_s", system=system, latency_ms=latency_ms, workers=1)

    def cost(system: str, path: str) -> Spread | None:
        return spread(drains, path, system=system, latency_ms=0, workers=1)

    def delay(system: str, path: str) -> Spread | None:
        return spread(latencies, path, system=system)

    rates = [found for peer in PYTHON_PEERS if (found := rate(peer)) is not None]
    best_peer = max(rates, key=lambda one: one.middle, default=None)
    at_50 = rate("ledger", 50)
    transactions = cost("ledger", "tx_per_action")
    idle_cpu, idle_rss = delay("ledger", "idle_cpu_percent"), delay("ledger", "idle_rss_mb")
    return {
        **dict.fromkeys(TARGETS),
        **growth,
        "ledger_vs_limit": over(rate("ledger"), rate("limit")),
        "ledger_vs_limit_own": over(rate("ledger"), rate("limit_own")),
        "ledger_vs_limit_raw": over(rate("ledger"), rate("limit_raw")),
        "ledger_vs_best_python_peer": over(rate("ledger"), best_peer),
        "ledger_vs_river": over(rate("ledger"), rate("river")),
        "kafka_vs_ledger": over(rate("kafka"), rate("ledger")),
        "t50_vs_cap": None if at_50 is None else at_50.middle / CAP_AT_50_MS,
        "kafka_p50_vs_raw_cdc": over(delay("kafka", "arrival_ms.p50"), delay("raw_cdc", "arrival_ms.p50")),
        "kafka_p99_vs_raw_cdc": over(delay("kafka", "arrival_ms.p99"), delay("raw_cdc", "arrival_ms.p99")),
        "ledger_p50_vs_river": over(delay("ledger", "arrival_ms.p50"), delay("river", "arrival_ms.p50")),
        "ledger_p99_vs_limit": over(delay("ledger", "arrival_ms.p99"), delay("limit", "arrival_ms.p99")),
        "tx_per_action": None if transactions is None else transactions.middle,
        "wal_vs_limit": over(cost("ledger", "wal_bytes_per_action"), cost("limit", "wal_bytes_per_action")),
        "cpu_vs_limit": over(cost("ledger", "cpu_s_per_1000"), cost("limit", "cpu_s_per_1000")),
        "idle_cpu_percent": None if idle_cpu is None else idle_cpu.middle,
        "idle_rss_mb": None if idle_rss is None else idle_rss.middle,
    }


def judged(found: Mapping[str, float | None]) -> dict[str, dict[str, object]]:
    """Each ratio beside its target; `met` is None where nothing was measured."""
    return {
        name: {
            "value": found.get(name),
            "target": str(target),
            "met": None if (value := found.get(name)) is None else target.met(value),
        }
        for name, target in TARGETS.items()
    }
