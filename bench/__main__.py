"""`make bench`: measure, write build/bench-report.json, and refresh the table and the plots of docs/performance.md."""

from __future__ import annotations

import argparse
import sys

from bench import table
from bench.growth import SCENARIOS
from bench.run import REPORT, Choice, run

PARTS = ("drain", "latency", *SCENARIOS)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the first six ratios, in under half an hour")
    parser.add_argument("--only", default="", help=f"parts to run, of {', '.join(PARTS)}; adds to the last report")
    parser.add_argument("--systems", default="", help="measure only these systems")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds, 3 at least for a result that counts")
    parser.add_argument("--actions", type=int, default=10_000, help="size of a backlog")
    parser.add_argument("--latency-s", type=float, default=0, help="seconds of steady load")
    parser.add_argument("--held-s", type=float, default=600, help="how long the snapshot is held")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/performance.md alone")
    return parser.parse_args(arguments)


def main() -> None:
    """Run what was asked for; exit 1 when nothing could be measured. A missed target is a finding, not a failure."""
    given = parse(sys.argv[1:])
    only = tuple(part for part in given.only.split(",") if part)
    if unknown := set(only) - set(PARTS):
        sys.exit(f"error: there is no part {', '.join(sorted(unknown))}; choose of {', '.join(PARTS)}")
    report = run(
        Choice(
            parts=only or (("drain", "latency") if given.quick else PARTS),
            quick=given.quick,
            rounds=given.rounds,
            actions=given.actions,
            latency_s=given.latency_s or (10 if given.quick else 30),
            held_s=given.held_s,
            only_systems=tuple(name for name in given.systems.split(",") if name),
        ),
        go_on=bool(only),
    )
    if not given.no_docs:
        table.refresh(REPORT)
    print(table.verdict(REPORT))
    sys.exit(0 if report.drains or report.latencies or report.growth else 1)


if __name__ == "__main__":
    main()
