"""The judgement: what the ledger says, set against what the providers' own books say. Nobody is asked to be honest."""

from __future__ import annotations

import json
import platform
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from outbox_relay.local.demo.stage import Stage
from outbox_relay.local.demo.story import Told
from outbox_relay.providers.registry import load_contracts
from outbox_relay.trial.drill import CONFIRMED
from outbox_relay.trial.invariants import broken_invariants, read_findings, topic_equals_history
from outbox_relay.trial.scenario import Standing


@dataclass(frozen=True, slots=True)
class Line:
    """One action: the ledger's word, and the book's."""

    key: str
    provider: str
    says: str
    attempts: int
    requests: int
    effects: int
    agrees: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """All lines, and what is wrong beyond them."""

    lines: tuple[Line, ...]
    problems: tuple[str, ...]
    states: dict[str, int]

    @property
    def duplicates(self) -> int:
        """Effects beyond the first of an action."""
        return sum(max(0, line.effects - 1) for line in self.lines)

    @property
    def lost(self) -> int:
        """Committed actions that neither had an effect nor are explicitly without one."""
        return sum(line.effects == 0 and line.says not in {"not_sent", "rolled back"} for line in self.lines)

    @property
    def ok(self) -> bool:
        """True when ledger and books agree and every invariant holds."""
        return all(line.agrees for line in self.lines) and not self.problems


def judge(stage: Stage, told: Told) -> Verdict:
    """Read ledger and books once, after everything has come to rest."""
    scenario = stage.scenario
    books = {name: place.book for name, place in scenario.providers.items()}
    requests = Counter(line.ref for book in books.values() for line in book.requests())
    effects = Counter(line.ref for book in books.values() for line in book.effects())
    providers = {line.ref: name for name, book in books.items() for line in book.requests()}
    standings = scenario.standings()
    lines = [_line(each, providers.get(each.key, "-"), requests[each.key], effects[each.key]) for each in standings]
    lines += [
        Line(key, "-", "rolled back", 0, requests[key], effects[key], requests[key] == 0) for key in told.rolled_back
    ]
    contracts = load_contracts(scenario.folder / "contracts")
    findings = read_findings(stage.ledger.dsn("owner"), books, {name: str(contracts[name].type) for name in books})
    problems = [str(each) for each in broken_invariants(findings)]
    problems += [str(each) for each in topic_equals_history(findings, told.records)]
    problems += [f"{key} was never seen as unknown" for key in told.must_have_been_unknown - told.saw_unknown]
    return Verdict(tuple(lines), tuple(problems), dict(Counter(each.delivery_state for each in standings)))


def _line(standing: Standing, provider: str, requests: int, effects: int) -> Line:
    confirmed = standing.delivery_state in CONFIRMED
    agrees = effects == (1 if confirmed else 0) and not standing.duplicate_suspected
    return Line(standing.key, provider, standing.delivery_state, standing.attempts, requests, effects, agrees)


def write_report(path: Path, verdict: Verdict, stage: Stage, told: Told) -> Path:
    """Write the judgement as JSON and return the path."""
    books = [place.book for place in stage.scenario.providers.values()]
    report = {
        "actions_created": len(verdict.lines) - len(told.rolled_back),
        "provider_requests": sum(len(book.requests()) for book in books),
        "provider_effects": sum(len(book.effects()) for book in books),
        "duplicates": verdict.duplicates,
        "lost": verdict.lost,
        "states": verdict.states,
        "seconds_to_first_acceptance": told.seconds_to_first_acceptance,
        "records_read": len({event_id for event_id, _ in told.records}),
        "wakeups": "ledger" if stage.kafka is None else "kafka",
        "versions": {
            "outbox-relay": version("outbox-relay"),
            "python": platform.python_version(),
            **stage.stack.versions(),
        },
        "actions": [asdict(line) for line in verdict.lines],
        "problems": list(verdict.problems),
        "ok": verdict.ok,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path
