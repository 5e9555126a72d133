"""When to look for due work without a wake-up: the sweep, the poll of a ledger without Kafka, and the next due time.

Pure: the clock is an argument. The due time is asked for only when it may have changed, and never in a circle.
"""

from __future__ import annotations

import random

POLL_FIRST_S = 0.0025
"""The poll while there is work: most of what a commit waits for without Kafka."""
POLL_BUSY_S = 0.05
"""The poll stays short for this long after a claim that found something; then it doubles."""
POLL_MAX_S = 0.12
"""Without Kafka an idle ledger is polled this often, or at every sweep where that is more often: what the first commit
after a pause waits for at most."""
LOOK_AHEAD_MIN_S = 0.25
"""Least time between two questions for the next due time: a due action that cannot be claimed must not spin us."""
DUE_SLACK_S = 0.001


class Timers:
    """The moments at which something rings, in monotonic seconds."""

    def __init__(self, *, sweep_s: float, polling: bool, now: float) -> None:
        self._sweep_s = sweep_s
        self._poll_max_s = min(POLL_MAX_S, sweep_s)
        self._poll_s = POLL_FIRST_S
        self._busy_until = now
        self._poll_at = now if polling else None
        self._sweep_at = now
        self._due_at: float | None = None
        # Polls are closer together than any look ahead: what is due is found by them.
        self._looks_ahead = not polling
        self._look_at = now if self._looks_ahead else None
        self._looked_at = now - LOOK_AHEAD_MIN_S

    def ring(self, now: float) -> list[str]:
        """What is due now, of sweep, poll and due; each is wound up again."""
        rung = []
        if now >= self._sweep_at:
            # Spread, so that the relays of one ledger do not sweep in step.
            self._sweep_at = now + self._sweep_s * random.uniform(0.9, 1.1)  # noqa: S311
            self.due_time_changed(now)
            rung.append("sweep")
        if self._poll_at is not None and now >= self._poll_at:
            self._poll_at = now + self._poll_s
            if now >= self._busy_until:
                self._poll_s = min(self._poll_max_s, self._poll_s * 2)
            rung.append("poll")
        if self._due_at is not None and now >= self._due_at:
            self._due_at = None
            self.due_time_changed(now)
            rung.append("due")
        return rung

    def found_work(self, now: float) -> None:
        """A claim got something: more may follow soon."""
        self._poll_s = POLL_FIRST_S
        self._busy_until = now + POLL_BUSY_S
        if self._poll_at is not None:
            self._poll_at = min(self._poll_at, now + self._poll_s)

    def due_time_changed(self, now: float) -> None:
        """Work was scheduled or claimed: what is due next must be asked for again, soon."""
        if self._looks_ahead and self._look_at is None:
            self._look_at = max(now, self._looked_at + LOOK_AHEAD_MIN_S)

    def look_ahead_wanted(self, now: float) -> bool:
        """True when the ledger should be asked for the next due time."""
        return self._look_at is not None and now >= self._look_at

    def looking_ahead(self, now: float) -> None:
        """The ledger is being asked; what changes from here on asks again."""
        self._looked_at, self._look_at = now, None

    def next_due(self, due_in_s: float | None, now: float) -> None:
        """The ledger's answer. What is due already and was not claimed is blocked or another's: look again, later."""
        if due_in_s is None:
            self._due_at = None
        else:
            self._due_at = now + (due_in_s + DUE_SLACK_S if due_in_s > 0 else LOOK_AHEAD_MIN_S)

    def next_ring(self) -> float:
        """The earliest moment at which anything here rings."""
        moments = (self._sweep_at, self._poll_at, self._due_at, self._look_at)
        return min(moment for moment in moments if moment is not None)
