"""Writes the figures of drill reports into docs/drills.md and, in short, docs/guarantees.md, between two marks each.

`python tools/drill_table.py [REPORT ...]`: build/drill-report.json by default. Several reports are one table, as when
drills and planted bugs were run apart. It computes nothing but sums and the bound; it never runs a drill.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE, SHORT_PAGE = ROOT / "docs" / "drills.md", ROOT / "docs" / "guarantees.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
HEAD = """| drill | timings | N | types | actions | duplicates | lost | undecided without owner | so the rate is below |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""
SHORT_HEAD = """| drill | actions | second effects, lost, or with nobody | so the rate is below (95 %) |
| --- | --- | --- | --- |"""
COUNTED = ("duplicates", "lost", "undecided_without_owner")
Report = Mapping[str, Any]


def short_table(reports: Sequence[Report]) -> str:
    """One row per drill over all timings, groups and contract types: what went wrong, and the bound."""
    runs: dict[str, list[Report]] = {}
    for report in reports:
        for entry in report["drills"]:
            runs.setdefault(entry["drill"], []).append(entry)
    planted = [each for report in reports for each in report["planted_bugs"]["list"]]
    lines = [SHORT_HEAD, *(short_row(*each) for each in sorted(runs.items()))]
    if planted:
        lines += ["", f"Planted bugs: {sum(each['caught'] for each in planted)} of {len(planted)} caught."]
    return "\n".join(lines)


def short_row(drill: str, groups: Sequence[Report]) -> str:
    """One drill in short."""
    if not all(group["passed"] for group in groups):
        return f"| `{drill}` | | | did not pass |"
    actions, wrong = sum(group["runs"] for group in groups), sum(group[name] for group in groups for name in COUNTED)
    return f"| `{drill}` | {actions} | {wrong} | {bound(actions, wrong)} |"


def bound(actions: int, wrong: int) -> str:
    """What no failure in so many actions says, and nothing where there was one."""
    return "-" if wrong or not actions else f"{math.ceil(30_000 / actions) / 100:g} % (0 of {actions})"


def table(reports: Sequence[Report]) -> str:
    """One row per drill and timings, then who caught which planted bug."""
    entries = [entry for report in reports for entry in report["drills"]]
    runs: dict[tuple[str, str, int], list[Report]] = {}
    for entry in entries:
        runs.setdefault((entry["drill"], entry["profile"], entry["asked"]), []).append(entry)
    rows = [row(*which, groups) for which, groups in sorted(runs.items())]
    seeds = ", ".join(sorted({str(entry["seed"]) for entry in entries}))
    lines = [
        f"Seed {seeds}. N is the actions per group; a drill has several groups and contract types.",
        "",
        HEAD,
        *rows,
    ]
    planted = [each for report in reports for each in report["planted_bugs"]["list"]]
    if planted:
        caught = sum(each["caught"] for each in planted)
        lines += [
            "",
            f"Planted bugs: {caught} of {len(planted)} caught.",
            "",
            "| planted bug | caught by |",
            "| --- | --- |",
        ]
        lines += [f"| {each['name']} | {who(each)} |" for each in sorted(planted, key=lambda each: each["name"])]
    return "\n".join(lines)


def row(drill: str, profile: str, asked: int, groups: Sequence[Report]) -> str:
    """The sums over the groups of one drill, and what zero failures in so many actions say: below 3/n, with 95 %."""
    if not all(group["passed"] for group in groups):
        return f"| `{drill}` | {profile} | {asked} | | | | | | did not pass |"
    types = " ".join(sorted({group["contract_type"] for group in groups}))
    actions = sum(group["runs"] for group in groups)
    sums = [sum(group[name] for group in groups) for name in COUNTED]
    said = bound(actions, sum(sums))
    return f"| `{drill}` | {profile} | {asked} | {types} | {actions} | {' | '.join(map(str, sums))} | {said} |"


def who(catch: Report) -> str:
    """The catcher, or that there was none."""
    if not catch["caught"]:
        return "**nobody**"
    file, found, test = catch["caught_by"].partition("::")
    return (
        f"`{file.removeprefix('tests/')}`: {test.removeprefix('test_').replace('_', ' ')}"
        if found
        else f"drill `{file}`"
    )


def placed(page: str, figures: str) -> str:
    """The page with other figures between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{figures}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Write the pages."""
    files = [Path(name) for name in arguments] or [ROOT / "build" / "drill-report.json"]
    reports = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    for page, figures in ((PAGE, table(reports)), (SHORT_PAGE, short_table(reports))):
        page.write_text(placed(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
