"""Runs the chosen parts in interleaved rounds; writes build/bench-report.json after every measurement.

A round measures every system once before any is measured again: what else the machine does hits all of them alike.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import psycopg

from bench import ratios
from bench.drain import drain
from bench.ground import Ground, TrialFailed
from bench.growth import SCENARIOS, Plan
from bench.latency import RATE_PER_S, measure_latency
from bench.meters import load_average
from bench.systems import ROOT, System, build_river, everything

REPORT = ROOT / "build" / "bench-report.json"
QUICK_SYSTEMS = ("limit", "limit_own", "limit_raw", "ledger", "river", "pgqueuer", "kafka")
QUICK_AT_50_MS = ("limit", "ledger", "river")
QUICK_LATENCY = ("limit", "ledger", "river", "kafka", "raw_cdc")
SLOW = ("procrastinate", "dbos")


@dataclass(frozen=True, slots=True)
class Choice:
    """What shall be measured."""

    parts: tuple[str, ...]
    quick: bool
    rounds: int
    actions: int
    latency_s: float
    held_s: float
    only_systems: tuple[str, ...] = ()


@dataclass
class Report:
    """Everything that was measured, so far."""

    choice: Choice
    path: Path = REPORT
    drains: list[dict[str, object]] = field(default_factory=list)
    latencies: list[dict[str, object]] = field(default_factory=list)
    growth: dict[str, dict[str, object]] = field(default_factory=dict)
    growth_ratios: dict[str, float | None] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    load_before: float = field(default_factory=load_average)
    began: float = field(default_factory=time.monotonic)

    def write(self) -> None:
        """Write what there is."""
        found = ratios.ratios(self.drains, self.latencies, self.growth_ratios)
        document = {
            "machine": {
                "cores": os.cpu_count(),
                "memory_gb": round(psutil.virtual_memory().total / 2**30),
                "system": platform.platform(terse=True),
                "python": platform.python_version(),
            },
            "versions": self.versions,
            "rounds": self.choice.rounds,
            "actions": self.choice.actions,
            "quick": self.choice.quick,
            "load_average": {"before": self.load_before, "after": load_average()},
            "seconds": round(time.monotonic() - self.began),
            "ratios": found,
            "targets": ratios.judged(found),
            "not_run": self.not_run,
            "drains": self.drains,
            "latencies": self.latencies,
            "growth": self.growth,
        }
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(document, indent=1))


def take_up(report: Report) -> None:
    """Go on with the figures of an earlier run of the same plan, for scenarios that are run one by one."""
    if report.path.exists():
        before = json.loads(report.path.read_text())
        # What is measured anew replaces what was: figures of two versions must never share a median.
        report.drains = [] if "drain" in report.choice.parts else before["drains"]
        report.latencies = [] if "latency" in report.choice.parts else before["latencies"]
        report.growth, report.not_run = before["growth"], before["not_run"]
        for scenario in report.growth.values():
            kept = scenario["ratios"]
            if isinstance(kept, dict):
                report.growth_ratios |= kept


def run(choice: Choice, *, go_on: bool = False) -> Report:
    """Measure everything that was chosen."""
    report = Report(choice)
    if go_on:
        take_up(report)
    systems = everything(build_river())
    report.not_run |= {name: system.needs for name, system in systems.items() if system.needs}
    usable = {name: system for name, system in systems.items() if not system.needs}
    if choice.only_systems:
        usable = {name: system for name, system in usable.items() if name in choice.only_systems}
    kafka = any(system.kafka for system in usable.values()) and bool({"drain", "latency"} & set(choice.parts))
    with Ground(kafka=kafka) as ground:
        report.versions = ground.versions
        if "drain" in choice.parts:
            _drains(ground, report, usable)
        if "latency" in choice.parts:
            _latencies(ground, report, usable)
        for name in choice.parts:
            if name in SCENARIOS:
                _scenario(ground, report, name, systems["ledger"])
    report.write()
    return report


def _drains(ground: Ground, report: Report, systems: dict[str, System]) -> None:
    choice = report.choice
    chosen = [name for name in (QUICK_SYSTEMS if choice.quick else systems) if name in systems and name != "raw_cdc"]
    slower = [name for name in (QUICK_AT_50_MS if choice.quick else chosen) if name in chosen]
    for number in range(choice.rounds):
        plan = [(name, 0.0) for name in _turned(chosen, number)] + [(name, 50.0) for name in _turned(slower, number)]
        for name, latency_ms in plan:
            one = partial(_drain, ground, report, systems[name], latency_ms=latency_ms, number=number)
            _attempt(report, f"{name} at {latency_ms:.0f} ms", one)


def _drain(ground: Ground, report: Report, system: System, *, latency_ms: float, number: int) -> None:
    actions = max(200, int(report.choice.actions * system.share))
    one = drain(ground, system, actions=actions, latency_ms=latency_ms)
    report.drains.append(one.as_dict())
    _say(
        f"round {number + 1}  {system.name:14} T{latency_ms:<3.0f} {one.actions_per_s:8.0f}/s"
        f"  cpu {one.cpu_s_per_1000:.2f} s/1000  wal {one.wal_bytes_per_action:.0f} B  load {one.load}"
    )


def _latencies(ground: Ground, report: Report, systems: dict[str, System]) -> None:
    choice = report.choice
    left_out = {"limit_narrow", "limit_own", "limit_raw", *(SLOW if choice.quick else ())}
    chosen = [name for name in (QUICK_LATENCY if choice.quick else systems) if name in systems and name not in left_out]
    for number in range(choice.rounds):
        for name in _turned(chosen, number):
            _attempt(report, f"latency of {name}", partial(_latency, ground, report, systems[name], number=number))


def _latency(ground: Ground, report: Report, system: System, *, number: int) -> None:
    one = measure_latency(ground, system, seconds=report.choice.latency_s)
    report.latencies.append(one.as_dict())
    at = one.arrival_ms
    _say(
        f"round {number + 1}  {system.name:14} {RATE_PER_S}/s  p50 {at.p50:.1f}  p90 {at.p90:.1f}  p99 {at.p99:.1f} ms"
        f"  idle {one.idle_cpu_percent:.1f} %  load {one.load}"
    )


def _scenario(ground: Ground, report: Report, name: str, system: System) -> None:
    choice = report.choice
    plan = Plan(choice.rounds, choice.actions, choice.held_s, choice.latency_s)

    def measure() -> None:
        found = SCENARIOS[name](ground, system, plan)
        report.growth[name] = {
            "about": (SCENARIOS[name].__doc__ or "").strip(),
            "ratios": found.ratios,
            "drains": [one.as_dict() for one in found.drains],
            "latencies": [one.as_dict() for one in found.latencies],
        }
        report.growth_ratios |= found.ratios
        _say(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in found.ratios.items()))

    _attempt(report, name, measure)


def _attempt(report: Report, what: str, measure: Callable[[], None]) -> None:
    """One that fails is reported and costs the others nothing."""
    try:
        measure()
    except (TrialFailed, OSError, subprocess.SubprocessError, psycopg.Error, psutil.Error) as error:
        report.not_run[what] = f"{type(error).__name__}: {error}"[:2000]
        _say(f"{what}: not measured: {str(error)[:300]}")
    report.write()


def _turned(names: Sequence[str], by: int) -> list[str]:
    """The same names, beginning elsewhere, so that no system always follows the same one."""
    at = by % len(names) if names else 0
    return [*names[at:], *names[:at]]


def _say(line: str) -> None:
    print(line, flush=True)
