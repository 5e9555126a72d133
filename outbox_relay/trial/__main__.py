"""`python -m outbox_relay.trial` (`make drill`): every drill, N of each, then the planted bugs, and a report.

A run that was interrupted goes on with what is missing. Needs a PostgreSQL on which it may create databases:
--database-url, else a local one. Exit code 6 for a failed drill or a bug that nobody caught.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from outbox_relay.errors import ConditionNotMet, OutboxError
from outbox_relay.local.stack import Stack
from outbox_relay.trial import drills
from outbox_relay.trial.drill import Drill
from outbox_relay.trial.grounds import Grounds
from outbox_relay.trial.planted import PlantedBug, Servers, catch, catchers_of, failures_unplanted, read_bugs
from outbox_relay.trial.processes import DEFAULT_PROFILE, HOLDING_PROFILE
from outbox_relay.trial.report import Order, Report


def found_drills() -> dict[str, Drill]:
    """Every module of the package that has a name and a `run`, by its name."""
    names = [f"{drills.__name__}.{found.name}" for found in pkgutil.iter_modules(drills.__path__)]
    modules = [importlib.import_module(name) for name in names]
    return {module.NAME: module.run for module in modules if hasattr(module, "NAME")}


DRILLS = found_drills()
DEFAULT_PROFILE_RUNS = 20
"""The pass at default timings: one batch, because each of its waits takes minutes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m outbox_relay.trial", description="Run the drills.")
    parser.add_argument("--runs", "-n", type=int, default=300, help="actions per drill, group and provider")
    parser.add_argument("--drill", action="append", choices=sorted(DRILLS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--profile", choices=("test", "default", "both"), default="both", help="which timings")
    parser.add_argument("--report", type=Path, default=Path("build/drill-report.json"))
    parser.add_argument("--resume", action="store_true", help="keep what a finished report of these programs has, too")
    parser.add_argument("--database-url", help="owner's URL of a server for trial databases; else a local one")
    parser.add_argument("--planted", type=Path, help="bugs, a file or a folder: plant each into a copy, and catch it")
    parser.add_argument("--only-planted", action="store_true", help="no drills but those of the planted bugs")
    options = parser.parse_args(arguments)
    folder = options.report.absolute().parent / "drill" / f"run-{os.getpid()}"
    report = Report(options.report, resume=options.resume)
    try:
        with Place(options.database_url) as place:
            for order in [] if options.only_planted else orders(options.profile, options.runs, options.seed):
                for name in options.drill or DRILLS:
                    run_one(name, order, Grounds(place.postgres(), folder), report)
            if options.planted is not None:
                catch_planted(read_bugs(options.planted), place, options.seed, report)
    except OutboxError as error:
        print(f"{error}\n{error.hint or ''}", file=sys.stderr)
        return error.exit_code
    report.finish()
    print(f"report: {options.report}: {'everything held' if report.passed else 'NOT everything held'}")
    return 0 if report.passed else ConditionNotMet.exit_code


def orders(profile: str, runs: int, seed: int) -> list[Order]:
    """What to run: with both profiles the short one in full, and one batch at the default timings."""
    short, long = Order(HOLDING_PROFILE, runs, seed), Order(DEFAULT_PROFILE, runs, seed)
    if profile == "both":
        return [short, replace(long, runs=min(DEFAULT_PROFILE_RUNS, runs))]
    return [short if profile == "test" else long]


def run_one(name: str, order: Order, grounds: Grounds, report: Report) -> None:
    """Run one drill, tell the outcome, and write it down at once."""
    said = f"{name} ({order.profile.name} timings, {order.runs} of each, seed {order.seed})"
    if report.has(name, order):
        print(f"{said}: already in the report")
        return
    print(f"{said} ...", flush=True)
    try:
        results = DRILLS[name](grounds.open_scenario, order.runs, order.seed, order.profile)
    except ConditionNotMet as error:
        report.add_failure(name, order, what=str(error))
        print(f"  FAILED: {error}", flush=True)
        return
    report.add(name, order, results)
    for result in results:
        word = "ok" if result.passed else "FAILED"
        where = f"{result.name} at {result.provider} (type {result.contract_type})"
        print(f"  {word}  {where}: effects per key {result.effects_per_key}, {result.seconds} s", flush=True)
        for what in result.broken[:10]:
            print(f"      {what}")


def catch_planted(bugs: Sequence[PlantedBug], place: Place, seed: int, report: Report) -> None:
    """First every catcher without a bug, then every bug: plant, run, tell and write down at once."""
    report.expect_planted(bugs)
    missing = [bug for bug in bugs if not report.caught(bug)]
    print(f"{len(bugs)} planted bugs (seed {seed}), {len(missing)} to be caught", flush=True)
    servers = place.servers(kafka=any(bug.kafka for bug in missing))
    failures = failures_unplanted(catchers_of(missing), Path.cwd(), servers, seed=seed)
    report.add_unplanted(failures)
    for name, said in failures.items():
        print(f"  FAILS WITHOUT A BUG  {name}: {said}", flush=True)
    for bug in missing:
        found = catch(bug, Path.cwd(), servers, seed=seed)
        word = "caught" if found.caught else "NOT CAUGHT"
        print(f"  {word}  {found.name} (by {found.caught_by}): {found.by[:300]}", flush=True)
        report.add_planted(found)


class Place:
    """The given server, or local ones for as long as the block runs."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._open = ExitStack()
        self._stack: Stack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def postgres(self) -> str:
        """The owner's URL."""
        if self._url is not None:
            return self._url
        stack = self._local()
        stack.start_postgres()
        return stack.postgres.dsn()

    def servers(self, *, kafka: bool) -> Servers:
        """For runs in copies. Broker and Connect read from a PostgreSQL beside them."""
        if not kafka:
            return Servers(self.postgres())
        stack = self._local()
        stack.start_postgres()
        stack.start_connect()
        return Servers(stack.postgres.dsn(), stack.broker.bootstrap, stack.connect.url)

    def _local(self) -> Stack:
        if self._stack is None:
            self._stack = self._open.enter_context(Stack(Path("build"), durable=False, name="drill", progress=print))
        return self._stack


if __name__ == "__main__":
    sys.exit(main())
