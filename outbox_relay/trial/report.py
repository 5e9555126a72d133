"""The report of the drills, `build/drill-report.json`: written after every drill, so that a stopped run can go on.

What another version of the programs has shown is never taken over: every report names the sources that it is about.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import outbox_relay
from outbox_relay.trial.drill import DrillResult
from outbox_relay.trial.planted import Catch, PlantedBug
from outbox_relay.trial.processes import Profile
from outbox_relay.trial.reached import missed_by


@dataclass(frozen=True, slots=True)
class Order:
    """Which run of a drill is asked for."""

    profile: Profile
    runs: int
    seed: int


Entry = dict[str, object]
ROOT = Path(outbox_relay.__file__).resolve().parent.parent
ENOUGH = 10
"""Actions per group that reach what a drill must reach."""
PROGRAMS = ("outbox_relay", "reconciler", "schemas")


def digest_of(root: Path = ROOT) -> str:
    """Which programs were on trial: a hash of everything that is theirs."""
    digest = hashlib.sha256()
    for file in sorted(file for folder in PROGRAMS for file in (root / folder).rglob("*") if file.is_file()):
        if "__pycache__" not in file.parts:
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class Report:
    """Collects entries. Those of an unfinished report of the same programs are kept, of a finished one on demand."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.programs = digest_of()
        self.finished = False
        self._drills: list[Entry] = []
        self._skipped: list[Entry] = []
        self._planted: list[Entry] = []
        self._unplanted: dict[str, str] | None = None
        self._planted_total = 0
        self._lock = threading.Lock()
        self._reached: dict[str, None] = {}
        known = json.loads(path.read_text()) if path.exists() else {}
        if known.get("programs") == self.programs and (resume or not known["finished"]):
            self._drills = [entry for entry in known["drills"] if entry["passed"]]
            self._reached.update(dict.fromkeys(known["branches_reached"]))
            self._planted = [entry for entry in known["planted_bugs"]["list"] if entry["caught"]]

    @property
    def passed(self) -> bool:
        """True when every drill in it passed, every planted bug was caught, and no catcher fails without a bug."""
        caught = [entry for entry in self._planted if entry["caught"]]
        drills = all(entry["passed"] for entry in self._drills)
        return drills and not self.missed and len(caught) == self._planted_total and not self._unplanted

    @property
    def missed(self) -> list[str]:
        """I10: what the drills in it should have reached and have not. A handful of actions need not."""
        run = {str(entry["drill"]) for entry in self._drills if entry["passed"] and int(str(entry["asked"])) >= ENOUGH}
        return sorted({branch for drill in run for branch in missed_by(drill, self._reached)})

    def has(self, drill: str, order: Order) -> bool:
        """Whether this very drill is in it."""
        wanted = {"drill": drill, "profile": order.profile.name, "asked": order.runs, "seed": order.seed}
        return any(wanted.items() <= entry.items() for entry in self._drills)

    def add(self, drill: str, order: Order, results: Sequence[DrillResult]) -> None:
        """Write down the results of a drill."""
        for result in results:
            # None broken in N runs bounds the rate at about 3/N with 95 % confidence.
            bound = round(3 / result.runs, 4) if result.passed and result.runs else None
            self._reached.update(dict.fromkeys(result.reached))
            extra = {"drill": drill, "asked": order.runs, "passed": result.passed, "failure_rate_below": bound}
            entry = {**asdict(result), **extra}
            del entry["reached"]
            self._drills.append(entry)
        self._write()

    def add_failure(self, drill: str, order: Order, *, what: str) -> None:
        """Write down a drill that did not come to its end."""
        self._drills.append(
            {
                "drill": drill,
                "name": drill,
                "contract_type": None,
                "profile": order.profile.name,
                "asked": order.runs,
                "runs": 0,
                "effects_per_key": {},
                "duplicates": None,
                "lost": None,
                "undecided_without_owner": None,
                "seed": order.seed,
                "broken": [what],
                "passed": False,
            }
        )
        self._write()

    def add_skipped(self, drill: str, order: Order, *, why: str) -> None:
        """Write down a drill that this machine cannot run: neither passed nor failed."""
        self._skipped.append({"drill": drill, "profile": order.profile.name, "asked": order.runs, "why": why})
        self._write()

    def caught(self, bug: PlantedBug) -> bool:
        """Whether this very bug was caught already."""
        return any(entry["name"] == bug.name and entry["caught_by"] == bug.caught_by for entry in self._planted)

    def expect_planted(self, bugs: Sequence[PlantedBug]) -> None:
        """So many bugs must be caught; forget those that are planted no more."""
        names = {bug.name for bug in bugs}
        self._planted = [entry for entry in self._planted if entry["name"] in names]
        self._planted_total = len(bugs)
        self._write()

    def add_planted(self, catch: Catch) -> None:
        """Write down whether a planted bug was caught."""
        self._planted.append(asdict(catch))
        self._write()

    def add_unplanted(self, failures: Mapping[str, str]) -> None:
        """Write down which catchers fail without any bug, and hence prove nothing."""
        self._unplanted = dict(failures)
        self._write()

    def finish(self) -> None:
        """Everything that was asked for is in it: the next run starts afresh."""
        self.finished = True
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        planted = {
            "total": self._planted_total,
            "caught": sum(bool(entry["caught"]) for entry in self._planted),
            # None: not run yet. Empty: each catcher passes in a copy without a bug.
            "failing_without_a_bug": self._unplanted,
            "list": self._planted,
        }
        document = {
            "ok": self.passed,
            "finished": self.finished,
            "programs": self.programs,
            "drills": self._drills,
            "not_run": self._skipped,
            "branches_reached": sorted(self._reached),
            "branches_missed": self.missed,
            "planted_bugs": planted,
        }
        with self._lock:
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(document, indent=2) + "\n")
            part.replace(self.path)
