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
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from outbox_relay.errors import ConditionNotMet, NotPossibleHere, OutboxError
from outbox_relay.local.stack import Stack
from outbox_relay.trial import drills
from outbox_relay.trial.drill import Drill
from outbox_relay.trial.grounds import Grounds
from outbox_relay.trial.lanes import Lanes, Say, Task
from outbox_relay.trial.planted import PlantedBug, Servers, catch, catchers_of, failures_unplanted, read_bugs
from outbox_relay.trial.processes import DEFAULT_PROFILE, HOLDING_PROFILE
from outbox_relay.trial.report import Order, Report


def found_drills() -> dict[str, Drill]:
    """Every module of the package that has a name and a `run`, by its name."""
    names = [f"{drills.__name__}.{found.name}" for found in pkgutil.iter_modules(drills.__path__)]
    modules = [importlib.import_module(name) for name in names]
    return {module.NAME: module.run for module in modules if hasattr(module, "NAME")}


DRILLS = found_drills()
JOBS = 3
"""For two cores and more: most of a drill is waiting."""
DEFAULT_PROFILE_RUNS = 20
"""The pass at default timings: one batch, because each of its waits takes minutes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m outbox_relay.trial", description="Run the drills.")
    parser.add_argument("--runs", "-n", type=int, default=300, help="actions per drill, group and provider")
    parser.add_argument("--drill", action="append", choices=sorted(DRILLS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--jobs", type=int, default=JOBS, help="drills, or planted bugs, at a time")
    parser.add_argument("--profile", choices=("test", "default", "both"), default="both", help="which timings")
    parser.add_argument("--report", type=Path, default=Path("build/drill-report.json"))
    parser.add_argument("--resume", action="store_true", help="keep what a finished report of these programs has, too")
    parser.add_argument("--database-url", help="owner's URL of a server for trial databases; else a local one")
    parser.add_argument("--planted", type=Path, help="bugs, a file or a folder: plant each into a copy, and catch it")
    parser.add_argument("--only-planted", action="store_true", help="no drills but those of the planted bugs")
    options = parser.parse_args(arguments)
    folder = options.report.absolute().parent / "drill" / f"run-{os.getpid()}"
    report, lanes = Report(options.report, resume=options.resume), Lanes(options.jobs)
    try:
        with Place(options.database_url) as place:
            wanted = [] if options.only_planted else orders(options.profile, options.runs, options.seed)
            grounds = Grounds(place.postgres(), folder)
            lanes.run([task(name, order, grounds, report) for order in wanted for name in options.drill or DRILLS])
            if options.planted is not None:
                catch_planted(read_bugs(options.planted), place, options.seed, report, lanes)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on with what is missing", flush=True)
        os._exit(130)  # the lanes wait for what nobody will do; the guardians end what was started
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


def task(name: str, order: Order, grounds: Grounds, report: Report) -> Task:
    """One drill as something to do in a lane."""
    return Task(words(name, order), lambda say: run_one(name, order, grounds, report, say))


def words(name: str, order: Order) -> str:
    """What is run, in one line."""
    return f"{name} ({order.profile.name} timings, {order.runs} of each, seed {order.seed})"


def run_one(name: str, order: Order, grounds: Grounds, report: Report, say: Say) -> None:
    """Run one drill, tell the outcome, and write it down at once."""
    said = words(name, order)
    if report.has(name, order):
        say(f"{said}: already in the report")
        return
    say(f"{said} ...")
    try:
        results = DRILLS[name](grounds.open_scenario, order.runs, order.seed, order.profile)
    except NotPossibleHere as error:
        report.add_skipped(name, order, why=f"{error}: {error.hint}")
        say(f"{said}: NOT RUN: {error}\n      {error.hint}")
        return
    except ConditionNotMet as error:
        report.add_failure(name, order, what=str(error))
        say(f"{said}: FAILED: {error}")
        return
    except Exception as error:  # noqa: BLE001 - one drill that broke must not cost the hours of the others
        report.add_failure(name, order, what=f"{type(error).__name__}: {error}")
        say(f"{said}: BROKE: {''.join(traceback.format_exception(error))}")
        return
    report.add(name, order, results)
    lines = [said]
    for result in results:
        word = "ok" if result.passed else "FAILED"
        where = f"{result.name} at {result.provider} (type {result.contract_type})"
        lines.append(f"  {word}  {where}: effects per key {result.effects_per_key}, {result.seconds} s")
        lines += [f"      {what}" for what in result.broken[:10]]
    say("\n".join(lines))


def catch_planted(bugs: Sequence[PlantedBug], place: Place, seed: int, report: Report, lanes: Lanes) -> None:
    """First every catcher without a bug, then every bug: plant, run, tell and write down at once."""
    report.expect_planted(bugs)
    missing = [bug for bug in bugs if not report.caught(bug)]
    lanes.say(f"{len(bugs)} planted bugs (seed {seed}), {len(missing)} to be caught")
    servers = place.servers(kafka=any(bug.kafka for bug in missing))
    failures: dict[str, str] = {}

    def without_a_bug(catchers: Mapping[str, int], say: Say) -> None:
        for name, said in failures_unplanted(catchers, Path.cwd(), servers, seed=seed).items():
            failures[name] = said
            say(f"FAILS WITHOUT A BUG  {name}: {said}")

    def with_it(bug: PlantedBug, say: Say) -> None:
        found = catch(bug, Path.cwd(), servers, seed=seed)
        report.add_planted(found)
        word = "caught" if found.caught else "NOT CAUGHT"
        say(f"{word}  {found.name} (by {found.caught_by}): {found.by[:300]}")

    lanes.run(
        [Task(f"{name} without a bug", partial(without_a_bug, part)) for name, part in in_parts(catchers_of(missing))]
    )
    report.add_unplanted(failures)
    lanes.run([Task(f"planted: {bug.name}", partial(with_it, bug)) for bug in missing])


def in_parts(catchers: Mapping[str, int]) -> list[tuple[str, dict[str, int]]]:
    """All tests together, and every drill by itself."""
    tests = {name: runs for name, runs in catchers.items() if "::" in name}
    drills = [(name, {name: runs}) for name, runs in catchers.items() if name not in tests]
    return [*([("tests", tests)] if tests else []), *drills]


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
