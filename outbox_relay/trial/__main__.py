"""`python -m outbox_relay.trial` (`make drill`): every drill, N of each, and a report that can be resumed.

Needs a PostgreSQL on which it may create databases: --database-url, else a local one. Exit code 6 for a failed drill.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from outbox_relay.errors import ConditionNotMet, OutboxError
from outbox_relay.local.stack import Stack
from outbox_relay.trial.drill import Drill
from outbox_relay.trial.drills import deploy_42_notify, killed_before_write, lost_answer, two_relays, zombie
from outbox_relay.trial.grounds import Grounds
from outbox_relay.trial.planted import catch_all, read_bugs
from outbox_relay.trial.processes import DEFAULT_PROFILE, HOLDING_PROFILE
from outbox_relay.trial.report import Order, Report

DRILLS: dict[str, Drill] = {
    module.NAME: module.run for module in (deploy_42_notify, lost_answer, killed_before_write, zombie, two_relays)
}
DEFAULT_PROFILE_RUNS = 20
"""The pass at default timings: one batch, because each of its waits takes minutes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m outbox_relay.trial", description="Run the drills.")
    parser.add_argument("--runs", "-n", type=int, default=300, help="actions per drill, group and provider")
    parser.add_argument("--drill", action="append", choices=sorted(DRILLS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--report", type=Path, default=Path("build/drill-report.json"))
    parser.add_argument("--resume", action="store_true", help="keep what the report has of the same seed and runs")
    parser.add_argument("--database-url", help="owner's URL of a server for trial databases; else a local one")
    parser.add_argument("--planted", type=Path, help="bugs.toml: also plant each bug into a copy, and catch it")
    parser.add_argument("--only-planted", action="store_true", help="no drills but those of the planted bugs")
    parser.add_argument("--skip-default-timings", action="store_true", help="only the short profile")
    options = parser.parse_args(arguments)
    orders = [Order(HOLDING_PROFILE, options.runs, options.seed)]
    if not options.skip_default_timings:
        orders.append(Order(DEFAULT_PROFILE, min(DEFAULT_PROFILE_RUNS, options.runs), options.seed))
    folder = options.report.absolute().parent / "drill" / f"run-{os.getpid()}"
    report = Report(options.report, resume=options.resume)
    try:
        with server(options.database_url) as dsn:
            if options.planted is not None:
                catch_planted(options.planted, dsn, options.seed, report)
            for order in [] if options.only_planted else orders:
                for name in options.drill or DRILLS:
                    run_one(name, order, Grounds(dsn, folder), report)
    except OutboxError as error:
        print(f"{error}\n{error.hint or ''}", file=sys.stderr)
        return error.exit_code
    print(f"report: {options.report}")
    return 0 if report.passed else ConditionNotMet.exit_code


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


def catch_planted(file: Path, dsn: str, seed: int, report: Report) -> None:
    """Plant, run, tell and write down."""
    catches = []
    for catch in catch_all(read_bugs(file), Path.cwd(), dsn, seed=seed):
        word = "caught" if catch.caught else "NOT CAUGHT"
        print(f"  {word}  {catch.name} (by {catch.drill}): {catch.by[:160]}", flush=True)
        catches.append(catch)
    report.add_planted(catches)


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The given server, or a local one for as long as the drills run."""
    if url is not None:
        yield url
        return
    with Stack(Path("build"), durable=False, name="drill", progress=print) as stack:
        stack.start_postgres()
        yield stack.postgres.dsn()


if __name__ == "__main__":
    sys.exit(main())
