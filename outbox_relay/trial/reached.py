"""I10: which branches the runs of a drill have reached: what was decided about unknowns, how answers were taken.

Read from the programs' own logs afterwards. A branch that no run reaches is shown by no run: each has a drill that must
reach it, or a reason why none does and a test that shows it instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

FIELDS: Mapping[str, str] = {"decided": "decision", "attempt": "finding", "lookup": "answer"}
"""Log line: the field that names the branch."""


def branches_in(folder: Path) -> set[str]:
    """Every branch that the programs of a scenario logged, such as `decision: replay` or `relay attempt: accepted`."""
    return {branch for log in folder.glob("*.log") for branch in _branches(log)}


def _branches(log: Path) -> Iterable[str]:
    marks = [f'"event": "{event}"'.encode() for event in FIELDS]
    with log.open("rb") as lines:
        for raw in lines:
            if not any(mark in raw for mark in marks):
                continue
            try:
                line = json.loads(raw)
            except ValueError:
                continue  # a line that a killed program has not finished
            event = str(line["event"])
            where = f"{line['program']} " if event == "attempt" else ""
            yield f"{where}{FIELDS[event].replace('finding', 'attempt')}: {line[FIELDS[event]]}"
