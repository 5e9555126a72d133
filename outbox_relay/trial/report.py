"""The report of the drills, `build/drill-report.json`: written after every drill, so that a stopped run can go on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from outbox_relay.trial.drill import DrillResult
from outbox_relay.trial.planted import Catch
from outbox_relay.trial.processes import Profile


@dataclass(frozen=True, slots=True)
class Order:
    """Which run of a drill is asked for."""

    profile: Profile
    runs: int
    seed: int


Entry = dict[str, object]
NOTHING_PLANTED: Entry = {"total": 0, "caught": 0, "list": []}


class Report:
    """Collects entries; `resume` keeps those that the file has."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self._drills: list[Entry] = []
        self._planted: Entry = NOTHING_PLANTED
        if resume and path.exists():
            known = json.loads(path.read_text())
            self._drills = [entry for entry in known["drills"] if entry["passed"]]
            self._planted = known["planted_bugs"]

    @property
    def passed(self) -> bool:
        """True when every drill in it passed and every planted bug was caught."""
        everything = all(entry["passed"] for entry in self._drills)
        return everything and self._planted["caught"] == self._planted["total"]

    def has(self, drill: str, order: Order) -> bool:
        """Whether this very drill is in it."""
        wanted = {"drill": drill, "profile": order.profile.name, "asked": order.runs, "seed": order.seed}
        return any(wanted.items() <= entry.items() for entry in self._drills)

    def add(self, drill: str, order: Order, results: Sequence[DrillResult]) -> None:
        """Write down the results of a drill."""
        for result in results:
            # None broken in N runs bounds the rate at about 3/N with 95 % confidence.
            bound = round(3 / result.runs, 4) if result.passed and result.runs else None
            extra = {"drill": drill, "asked": order.runs, "passed": result.passed, "failure_rate_below": bound}
            self._drills.append({**asdict(result), **extra})
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

    def add_planted(self, catches: Sequence[Catch]) -> None:
        """Write down which planted bugs were caught."""
        caught = sum(catch.caught for catch in catches)
        self._planted = {"total": len(catches), "caught": caught, "list": [asdict(catch) for catch in catches]}
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {"ok": self.passed, "drills": self._drills, "planted_bugs": self._planted}
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(document, indent=2) + "\n")
        part.replace(self.path)
