"""Which unknown's replay window ends first, per provider: what an operator must see before it is too late.

Knows the cases that this process has looked at and not seen settled. Pure: the value of our own monotonic clock is an
argument. Nothing is decided by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from outbox_relay.ledger.records import UnknownCase
from reconciler.settle import window_left_s
from reconciler.terms import NoTerms, Policy, Terms

CASES_MAX = 100_000
"""Beyond this many open cases the oldest are forgotten: the figure is a sign, not a record."""


@dataclass(slots=True)
class Windows:
    """The ends of all known windows, in monotonic seconds."""

    policy: Policy
    _ends: dict[UUID, tuple[str, float]] = field(default_factory=dict)

    def note(self, case: UnknownCase, terms: Terms | NoTerms, now: float) -> None:
        """A case was looked at."""
        left_s = window_left_s(case, terms, self.policy)
        self._ends.pop(case.claim.action_id, None)
        if left_s:
            self._ends[case.claim.action_id] = (case.claim.provider, now + left_s)
        if len(self._ends) > CASES_MAX:
            del self._ends[next(iter(self._ends))]

    def settled(self, case: UnknownCase) -> None:
        """A case was resolved."""
        self._ends.pop(case.claim.action_id, None)

    def least_left_s(self, now: float) -> dict[str, float]:
        """Per provider, the shortest time in which an unknown can still be replayed; ended windows are dropped."""
        self._ends = {action: entry for action, entry in self._ends.items() if entry[1] > now}
        least: dict[str, float] = {}
        for provider, ends in self._ends.values():
            least[provider] = min(least.get(provider, ends - now), ends - now)
        return least
