"""Plants known bugs into copies of the sources and runs the drill or the test that must catch each.

A drill that cannot fail proves nothing. The bugs are data of the test suite (`tests/faults/planted/*.toml`), are never
applied to these sources, and are no part of the package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outbox_relay.errors import UsageError

SOURCES = ("outbox_relay", "reconciler", "schemas", "connectors", "tests", "pyproject.toml")
RUNS = 5
"""Actions per group: most bugs are there in every one of them."""
TIMEOUT_S = 900
CRASHES = ("NameError", "ImportError", "SyntaxError", "IndentationError")
"""A bug that does not even run proves nothing about who catches it."""
UNRELATED = ("PYTEST_", "COV_", "OUTBOX_")
"""What of the environment must not reach the run in the copy: settings of the session that plants."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One exact text in one file, and what takes its place."""

    file: str
    find: str
    replace: str

    def apply(self, root: Path, bug: str) -> None:
        """Change the file under `root`. Raises UsageError when the code has moved on."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            message = f"{bug}: its place in {self.file} occurs {text.count(self.find)} times"
            raise UsageError(message, hint="adapt tests/faults/planted to the code as it is now")
        text = text.replace(self.find, self.replace)
        compile(text, self.file, "exec") if path.suffix == ".py" else None
        path.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One bug, and who must catch it."""

    name: str
    edits: tuple[Edit, ...]
    caught_by: str
    """The name of a drill, or the id of a test (with `::`)."""
    shows: tuple[str, ...]
    """Words of which one must be in what the catcher says: failing for another reason is no catch."""
    quick: str | None = None
    """The id of a test that sees it without starting programs, for every test run."""
    kafka: bool = False
    """True when the catcher needs the broker and Connect."""
    runs: int = RUNS
    """Actions per group, for a drill: more where only a crowd shows the bug."""

    def plant(self, root: Path) -> None:
        """Change the files under `root`."""
        for edit in self.edits:
            edit.apply(root, self.name)


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers for the run in the copy; empty when there is none."""

    postgres: str
    """The owner's URL; the roles have no passwords."""
    kafka: str = ""
    connect: str = ""

    @property
    def environ(self) -> dict[str, str]:
        """What tests/plugins/places.py reads."""
        return {
            "STACK": "given",
            "STACK_POSTGRES": self.postgres,
            "STACK_KAFKA": self.kafka,
            "STACK_CONNECT": self.connect,
        }


@dataclass(frozen=True, slots=True)
class Catch:
    """Whether a bug was caught, by whom, and by what."""

    name: str
    caught_by: str
    caught: bool
    by: str


@dataclass(frozen=True, slots=True)
class _Run:
    failed: bool
    said: str


def read_bugs(place: Path) -> list[PlantedBug]:
    """All bugs of a file, or of the files of a folder in order of their names."""
    files = sorted(place.glob("*.toml")) if place.is_dir() else [place]
    return [_bug(entry) for file in files for entry in tomllib.loads(file.read_text(encoding="utf-8"))["bugs"]]


def _bug(entry: Mapping[str, object]) -> PlantedBug:
    given = dict(entry)
    edits, shows = given.pop("edits"), given.pop("shows")
    if not isinstance(edits, list) or not isinstance(shows, list):
        raise UsageError(f"{given.get('name')}: edits and shows are lists", hint="see the first bug of the file")
    return PlantedBug(edits=tuple(Edit(**edit) for edit in edits), shows=tuple(shows), **given)  # type: ignore[arg-type]


def catch(bug: PlantedBug, root: Path, servers: Servers, *, seed: int, by: str | None = None) -> Catch:
    """Plant the bug into a copy of `root` and run its catcher (or `by`) there: it must fail, and say why."""
    catcher = by or bug.caught_by
    with copied(root) as copy:
        bug.plant(copy)
        if "::" in catcher:
            run = _run_tests([catcher], copy, servers, seed)
        else:
            run = _run_drill(catcher, copy, servers, seed, bug.runs)
    seen = next((line for line in run.said.splitlines() for word in bug.shows if word in line), None)
    if not run.failed:
        return Catch(bug.name, catcher, caught=False, by="nothing failed")
    if seen is None or any(crash in run.said for crash in CRASHES):
        return Catch(bug.name, catcher, caught=False, by=f"failed for another reason: {run.said[-1500:]}")
    return Catch(bug.name, catcher, caught=True, by=seen.strip()[:300])


def failures_unplanted(catchers: Mapping[str, int], root: Path, servers: Servers, *, seed: int) -> dict[str, str]:
    """Run catchers (with the runs of the drills) in a copy without a bug. Returns who failed, and what they said."""
    tests = [catcher for catcher in catchers if "::" in catcher]
    runs: dict[str, _Run] = {}
    with copied(root) as copy:
        if tests:
            runs["tests"] = _run_tests(tests, copy, servers, seed)
        for drill in catchers:
            if drill not in tests:
                runs[drill] = _run_drill(drill, copy, servers, seed, catchers[drill])
    return {name: run.said[-3000:] for name, run in runs.items() if run.failed}


def catchers_of(bugs: Sequence[PlantedBug]) -> dict[str, int]:
    """Who catches these bugs, each once, and with how many runs."""
    most: dict[str, int] = {}
    for bug in bugs:
        most[bug.caught_by] = max(bug.runs, most.get(bug.caught_by, 0))
    return most


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of the sources and the tests, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        for source in SOURCES:
            if (root / source).is_dir():
                shutil.copytree(root / source, copy / source, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / source, copy / source)
        yield copy


def _run_drill(drill: str, copy: Path, servers: Servers, seed: int, runs: int) -> _Run:
    report = copy / "report.json"
    report.unlink(missing_ok=True)
    arguments = ["--runs", str(runs), "--drill", drill, "--seed", str(seed), "--report", str(report)]
    done = _python(
        ["-m", "outbox_relay.trial", "--profile", "test", "--database-url", servers.postgres, *arguments], copy, servers
    )
    if not report.exists():
        return _Run(failed=True, said=f"the drill did not run: {done}")
    failed = [entry for entry in json.loads(report.read_text())["drills"] if not entry["passed"]]
    said = [str(what) for entry in failed for what in entry["broken"]]
    said += [f"{entry['name']}: effects per key {entry['effects_per_key']}" for entry in failed]
    return _Run(bool(failed), "\n".join(said))


def _run_tests(tests: Sequence[str], copy: Path, servers: Servers, seed: int) -> _Run:
    plugins = ["-p", "no:randomly", "-p", "no:cacheprovider"]
    options = ["-q", "-x", "--tb=short", "--color=no", f"--basetemp={copy / 'tmp'}", f"--hypothesis-seed={seed}"]
    said = _python(["-m", "pytest", *plugins, *options, *tests], copy, servers)
    # 0: all passed, 1: some failed. Anything else is a test that was not found or did not run: said, and never a catch.
    code, _, text = said.partition("\n")
    return _Run(
        code != "0", text if code in ("0", "1") else f"the tests did not run ({code}): {text}".replace("E  ", "")
    )


def _python(arguments: Sequence[str], copy: Path, servers: Servers) -> str:
    """Run this interpreter on the copy. Returns the exit code, a line break, and everything that was printed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(UNRELATED)}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=copy,
            env={**inherited, **servers.environ, "PYTHONPATH": str(copy)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"timeout\nno end within {TIMEOUT_S} s"
    return f"{done.returncode}\n{done.stdout}\n{done.stderr}"
