"""Plants known bugs into copies of the sources and runs the drill that must catch each.

A drill that cannot fail proves nothing. The bugs are data of the test suite (`tests/faults/planted/bugs.toml`), are
never applied to these sources, and are no part of the package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from outbox_relay.errors import ConditionNotMet, UsageError

SOURCES = ("outbox_relay", "reconciler", "schemas", "connectors")
RUNS = 10
TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One bug and the drill that must catch it."""

    name: str
    drill: str
    file: str
    find: str
    replace: str
    also_find: str | None = None
    also_replace: str = ""

    def plant(self, root: Path) -> None:
        """Change the file under `root`. Raises UsageError when the code has moved on."""
        path = root / self.file
        text = path.read_text()
        edits = [(self.find, self.replace)]
        if self.also_find is not None:
            edits.append((self.also_find, self.also_replace))
        for find, replace in edits:
            if text.count(find) != 1:
                message = f"{self.name}: its place in {self.file} occurs {text.count(find)} times"
                raise UsageError(message, hint="adapt tests/faults/planted/bugs.toml to the code as it is now")
            text = text.replace(find, replace)
        compile(text, self.file, "exec") if path.suffix == ".py" else None
        path.write_text(text)


@dataclass(frozen=True, slots=True)
class Catch:
    """Whether a bug was caught, and by what."""

    name: str
    drill: str
    caught: bool
    by: str


def read_bugs(file: Path) -> list[PlantedBug]:
    """All bugs of a file."""
    return [PlantedBug(**entry) for entry in tomllib.loads(file.read_text())["bugs"]]


def catch_all(bugs: Sequence[PlantedBug], root: Path, dsn: str, *, seed: int) -> Iterator[Catch]:
    """Plant each bug into a copy of `root`, run its drill there on the server at `dsn`, and tell what came of it."""
    for bug in bugs:
        with tempfile.TemporaryDirectory(prefix="planted-") as folder:
            copy = Path(folder)
            for source in SOURCES:
                shutil.copytree(root / source, copy / source, ignore=shutil.ignore_patterns("__pycache__"))
            bug.plant(copy)
            yield _run(bug, copy, dsn, seed)


def _run(bug: PlantedBug, copy: Path, dsn: str, seed: int) -> Catch:
    report = copy / "report.json"
    arguments = ["--runs", str(RUNS), "--drill", bug.drill, "--seed", str(seed), "--report", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "outbox_relay.trial", "--skip-default-timings", "--database-url", dsn, *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if not report.exists():
        raise ConditionNotMet(f"the drill of {bug.name!r} did not run: {done.stderr[-1000:]}")
    failed = [entry for entry in json.loads(report.read_text())["drills"] if not entry["passed"]]
    by = next((str(what) for entry in failed for what in entry["broken"]), "")
    return Catch(bug.name, bug.drill, caught=bool(failed), by=by[:300])
