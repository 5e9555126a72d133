"""What a drill is, and how its runs are judged: by the provider's own book, set against the ledger.

A drill breaks something from outside while a number of actions are on their way, heals it, waits until everything has
come to rest, and is judged here. It reports; it decides nothing for the programs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from outbox_relay.providers.registry import load_contracts
from outbox_relay.trial.invariants import broken_invariants, read_findings
from outbox_relay.trial.processes import Profile
from outbox_relay.trial.reached import branches_in
from outbox_relay.trial.scenario import Scenario, Standing

BATCH = 30
"""Actions of one group that share one fault and one wait. Two groups of an account must fit into its 64 slots."""
CONFIRMED = frozenset({"delivery_confirmed", "reconciled_confirmed"})


class OpenScenario(Protocol):
    """Sets a stage with a ledger of its own."""

    def __call__(
        self, providers: Sequence[str], profile: Profile, url: str | None = None
    ) -> AbstractContextManager[Scenario]:
        """Set it, on the server of this owner's URL if one is given, and clear it away afterwards."""


@dataclass(frozen=True, slots=True)
class DrillResult:
    """One drill at one provider."""

    name: str
    provider: str
    contract_type: str
    profile: str
    runs: int
    effects_per_key: dict[str, int]
    """How many actions had how many effects: {"1": 300}."""
    duplicates: int
    lost: int
    """Without an effect, and yet called confirmed, or open without anybody having been asked."""
    undecided_without_owner: int
    seed: int
    seconds: float
    broken: tuple[str, ...] = ()
    """What did not hold, in words; empty for a pass."""
    reached: tuple[str, ...] = ()
    """The branches that the programs of this drill have reached: `outbox_relay/trial/reached.py`."""

    @property
    def passed(self) -> bool:
        """True when everything held."""
        return not (self.broken or self.duplicates or self.lost or self.undecided_without_owner)


Drill = Callable[[OpenScenario, int, int, Profile], list[DrillResult]]
"""drill(open_scenario, runs, seed, profile): runs per group."""


@dataclass
class Judge:
    """Collects what a drill expects while it goes on, and writes the results."""

    scenario: Scenario
    seed: int
    _started: float = field(default_factory=time.monotonic)
    _broken: list[str] = field(default_factory=list)

    def expect(self, holds: bool, what: str) -> None:  # noqa: FBT001
        """Note what does not hold; the drill goes on, so that a report names everything."""
        if not holds:
            self._broken.append(what)

    def expect_each(self, prefix: str, what: str, holds: Callable[[Standing], bool]) -> None:
        """Expect something of every action of a group."""
        found = self.scenario.standings(prefix)
        self.expect(bool(found), f"{what}: there is no action {prefix}*")
        for each in found:
            self.expect(holds(each), f"{what}: {each}")

    def expect_one_confirmed_effect(self, provider: str, prefix: str) -> None:
        """One logical action, one effect, one confirmed delivery that names it, and no loop."""
        book = self.scenario.providers[provider].book
        effects = {line.ref: line for line in book.effects()}
        counts = book.effects_per_key()
        requests = Counter(line.ref for line in book.requests())
        self.expect_each(prefix, "one effect", lambda each: counts.get(each.key) == 1)
        self.expect_each(prefix, "confirmed", lambda each: each.delivery_state in CONFIRMED)
        self.expect_each(
            prefix,
            "the provider's id is known",
            lambda each: each.key in effects and each.provider_id == effects[each.key].provider_id,
        )
        self.expect_each(prefix, "no loop", lambda each: requests[each.key] <= 2 and each.attempts <= 2)

    def results(self, name: str, groups: dict[str, str]) -> list[DrillResult]:
        """One result per group (prefix: provider), after the invariants of the whole ledger."""
        scenario = self.scenario
        contracts = load_contracts(scenario.folder / "contracts")
        types = {provider: str(contracts[provider].type) for provider in scenario.providers}
        books = {provider: place.book for provider, place in scenario.providers.items()}
        findings = read_findings(scenario.ledger.dsn("owner"), books, types)
        broken = (*self._broken, *(str(each) for each in broken_invariants(findings)))
        seconds = round(time.monotonic() - self._started, 1)
        reached = tuple(sorted(branches_in(scenario.folder)))
        found = []
        for prefix, provider in groups.items():
            standings = scenario.standings(prefix)
            counts = books[provider].effects_per_key()
            effects = [counts.get(each.key, 0) for each in standings]
            found.append(
                DrillResult(
                    name=name,
                    provider=provider,
                    contract_type=types[provider],
                    profile=scenario.profile.name,
                    runs=len(standings),
                    effects_per_key={str(number): count for number, count in sorted(Counter(effects).items())},
                    duplicates=sum(number > 1 for number in effects),
                    lost=sum(map(_is_lost, standings, effects)),
                    undecided_without_owner=sum(map(_is_undecided, standings)),
                    seed=self.seed,
                    seconds=seconds,
                    broken=broken,
                    reached=reached,
                )
            )
        return found


def _is_lost(standing: Standing, effects: int) -> bool:
    open_to_all = standing.delivery_state in ("delivery_pending", "delivery_unknown") and not standing.in_review
    return effects == 0 and (standing.delivery_state in CONFIRMED or open_to_all)


def _is_undecided(standing: Standing) -> bool:
    return standing.delivery_state in ("delivery_pending", "delivery_unknown") and not standing.in_review


def batches(runs: int, size: int = BATCH) -> Iterator[tuple[int, int]]:
    """Cut a number of runs into (number of the batch, its size)."""
    for number, start in enumerate(range(0, runs, size)):
        yield number, min(size, runs - start)


def keys(prefix: str, count: int) -> list[str]:
    """The keys of one group."""
    return [f"{prefix}{number:04d}" for number in range(count)]


def settle_timeout_s(profile: Profile) -> float:
    """How long everything may take to come to rest after the last fault: generous, and still a bound."""
    # The longest that a shipped contract waits before a lookup counts as proof: settle time plus processing.
    contract_s = 0 if profile.shortens_contracts else 240
    return 45 + 6 * (profile.lease_s + profile.deadline_s) + contract_s
