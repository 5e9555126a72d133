"""How the ledger mode changes as things grow: each scenario interleaves the grown state with the plain one.

Every scenario returns its ratios, and keeps its drains under names of their own for the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median

import psycopg

from bench.drain import Drain, drain, drain_in
from bench.ground import Database, Ground
from bench.grown import finish, leave_unknown
from bench.latency import Latency, latency_in
from bench.systems import System

QUIET_RATE = 50.0
NOISE_PER_QUIET = 10
HUNG_ACTIONS = 400


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    rounds: int
    actions: int
    held_s: float
    latency_s: float


@dataclass
class Findings:
    """What a scenario saw."""

    ratios: dict[str, float] = field(default_factory=dict)
    drains: list[Drain] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)

    def rate(self, name: str) -> float:
        """The median rate of the drains kept under a name."""
        return median(one.actions_per_s for one in self.drains if one.system == name)

    def keep(self, name: str, one: Drain) -> None:
        """Keep a drain under a name of the scenario."""
        self.drains.append(replace(one, system=name))


Scenario = Callable[[Ground, System, Plan], Findings]


def relays(ground: Ground, system: System, plan: Plan) -> Findings:
    """1, 2 and 4 relays on one ledger."""
    found = Findings()
    for _ in range(plan.rounds):
        for workers in (1, 2, 4):
            found.keep(f"relays_{workers}", drain(ground, system, actions=plan.actions, workers=workers))
    found.ratios["two_relays_vs_one"] = found.rate("relays_2") / found.rate("relays_1")
    found.ratios["four_relays_vs_one"] = found.rate("relays_4") / found.rate("relays_1")
    return found


def _beside(ground: Ground, system: System, plan: Plan, *, name: str, grow: Callable[[Database], None]) -> Findings:
    """Drain an empty ledger and a grown one in turn."""
    found = Findings()
    with ExitStack() as stack:
        empty = stack.enter_context(ground.database(system))
        grown = stack.enter_context(ground.database(system))
        grow(grown)
        for number in range(plan.rounds):
            found.keep(f"{name}_empty", drain_in(ground, empty, actions=plan.actions, prefix=f"r{number}"))
            found.keep(f"{name}_grown", drain_in(ground, grown, actions=plan.actions, prefix=f"r{number}"))
    found.ratios[f"{name}_vs_empty"] = found.rate(f"{name}_grown") / found.rate(f"{name}_empty")
    return found


def grown_1m(ground: Ground, system: System, plan: Plan) -> Findings:
    """A million finished actions."""
    return _beside(ground, system, plan, name="grown_1m", grow=lambda it: finish(it.dsn, 1_000_000))


def grown_10m(ground: Ground, system: System, plan: Plan) -> Findings:
    """Ten million finished actions."""
    return _beside(ground, system, plan, name="grown_10m", grow=lambda it: finish(it.dsn, 10_000_000))


def unknowns(ground: Ground, system: System, plan: Plan) -> Findings:
    """20,000 actions whose outcome nobody knows yet."""
    return _beside(ground, system, plan, name="unknowns_20k", grow=lambda it: leave_unknown(it.dsn, 20_000))


def scheduled(ground: Ground, system: System, plan: Plan) -> Findings:
    """50,000 actions scheduled for later."""

    def grow(database: Database) -> None:
        database.errand("enqueue", "50000", "later", BENCH_DUE="2100-01-01T00:00:00Z")

    return _beside(ground, system, plan, name="scheduled_50k", grow=grow)


def snapshot(ground: Ground, system: System, plan: Plan) -> Findings:
    """A snapshot held while the ledger works: no dead row can go."""
    found = Findings()
    with ExitStack() as stack:
        free = stack.enter_context(ground.database(system))
        held = stack.enter_context(ground.database(system))
        holder = stack.enter_context(psycopg.connect(held.dsn))
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from outbox.work_queue")
        until, number = time.monotonic() + plan.held_s, 0
        while number < plan.rounds or time.monotonic() < until:
            found.keep("snapshot_free", drain_in(ground, free, actions=plan.actions, prefix=f"r{number}"))
            found.keep("snapshot_held", drain_in(ground, held, actions=plan.actions, prefix=f"r{number}"))
            number += 1
        holder.rollback()
    last = plan.rounds
    rates = {
        name: median([one.actions_per_s for one in found.drains if one.system == name][-last:])
        for name in ("snapshot_free", "snapshot_held")
    }
    found.ratios["snapshot_held_vs_free"] = rates["snapshot_held"] / rates["snapshot_free"]
    return found


def _varied(
    ground: Ground, system: System, plan: Plan, *, name: str, actions: int, environ: dict[str, str]
) -> Findings:
    """Plain actions and varied ones in turn, each in a fresh ledger."""
    found = Findings()
    varied = replace(system, environ={**system.environ, **environ})
    for _ in range(plan.rounds):
        found.keep(f"{name}_plain", drain(ground, system, actions=plan.actions))
        found.keep(f"{name}_varied", drain(ground, varied, actions=actions))
    found.ratios[f"{name}_vs_plain"] = found.rate(f"{name}_varied") / found.rate(f"{name}_plain")
    return found


def ordering(ground: Ground, system: System, plan: Plan) -> Findings:
    """100,000 ordering keys, every action under its own."""
    environ = {"BENCH_ORDERING_KEYS": "100000"}
    return _varied(ground, system, plan, name="ordering_100k", actions=plan.actions, environ=environ)


def hot_key(ground: Ground, system: System, plan: Plan) -> Findings:
    """One ordering key for all: strictly one after the other."""
    environ = {"BENCH_ORDERING_KEYS": "1"}
    return _varied(ground, system, plan, name="hot_key", actions=min(500, plan.actions), environ=environ)


def providers(ground: Ground, system: System, plan: Plan) -> Findings:
    """1,000 accounts, one slot each."""
    names = ",".join(f"a{number:04d}" for number in range(1000))
    environ = {"BENCH_ACCOUNTS": names, "BENCH_ENQUEUE_FOR": names, "BENCH_SLOTS": "1"}
    return _varied(ground, system, plan, name="providers_1000", actions=plan.actions, environ=environ)


def soak(ground: Ground, system: System, plan: Plan) -> Findings:  # noqa: ARG001 - one signature for all scenarios
    """100,000 actions through one worker: memory must stay flat."""
    found = Findings()
    with ground.database(system) as database, database.worker() as worker:
        worker.wait_for(system.ready_event)
        sizes = []
        for number in range(10):
            ground.provider.reset()
            database.errand("enqueue", "10000", f"s{number}")
            while ground.provider.stats()["distinct"] < 10_000:
                time.sleep(0.1)
            sizes.append(worker.process.memory_info().rss)
    found.ratios["memory_growth"] = sizes[-1] / sizes[1]
    return found


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes on beside the quiet account."""

    system: System
    errand: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)


def neighbours(ground: Ground, system: System, plan: Plan) -> Findings:
    """A quiet account beside a hanging one, a noisy one at 10:1, and poison rows: its p99 against its p99 alone."""
    found = Findings()
    quiet = replace(system, environ={**system.environ, "BENCH_ACCOUNTS": "default,other"})
    hanging = replace(quiet, environ={**quiet.environ, "BENCH_OTHERS_PATH": "/hang"})
    seconds, noise = str(plan.latency_s + 8), str(QUIET_RATE * NOISE_PER_QUIET)
    cases = {
        "alone": Trouble(quiet, ()),
        "hanging": Trouble(hanging, ("enqueue", str(HUNG_ACTIONS), "hung")),
        "noisy": Trouble(quiet, ("load", noise, seconds, "noise")),
        "poison": Trouble(quiet, ("load", "5", seconds, "poison"), {"BENCH_POISON": "1"}),
    }
    for _ in range(plan.rounds):
        for name, trouble in cases.items():
            found.latencies.append(replace(_quiet_beside(ground, trouble, plan), system=f"quiet_{name}"))
    p99 = {
        name: median(one.arrival_ms.p99 for one in found.latencies if one.system == f"quiet_{name}") for name in cases
    }
    for name in ("hanging", "noisy", "poison"):
        found.ratios[f"neighbour_{name}_p99_ratio"] = p99[name] / p99["alone"]
    found.ratios["neighbour_p99_ratio"] = max(found.ratios.values())
    return found


def _quiet_beside(ground: Ground, trouble: Trouble, plan: Plan) -> Latency:
    with (
        ground.database(trouble.system) as database,
        database.worker() as worker,
        ThreadPoolExecutor(1) as beside,
    ):
        worker.wait_for(trouble.system.ready_event)
        ground.provider.reset()
        tasks: list[Future[str]] = []
        if trouble.errand:
            environ = {"BENCH_ENQUEUE_FOR": "other", **trouble.environ}
            tasks.append(beside.submit(database.errand, *trouble.errand, **environ))
        one = latency_in(ground, database, worker, seconds=plan.latency_s, rate=QUIET_RATE)
        for task in tasks:
            task.result()
    return one


SCENARIOS: dict[str, Scenario] = {
    "relays": relays,
    "grown_1m": grown_1m,
    "grown_10m": grown_10m,
    "snapshot": snapshot,
    "ordering": ordering,
    "hot_key": hot_key,
    "scheduled": scheduled,
    "unknowns": unknowns,
    "providers": providers,
    "soak": soak,
    "neighbours": neighbours,
}
