"""How fast each account may be asked and replayed: rate, places in flight, Retry-After and a breaker.

Pure: our own monotonic clock's value is passed in. A provider in trouble sees a probe at a time with growing gaps, and
what is kept back costs no claim of another account. Nothing here may decide what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Account = tuple[str, str]
"""Provider and account name."""

TOOK_WEIGHT = 0.2
"""Of the latest request in the estimate of what one takes."""
LINE_HURRY = 2.0
"""Cases that were sent away come back so many times faster than places become free, so that no place waits for one."""

KEPT_S = 1.0
"""A place is kept so much longer than until the case comes again: it is claimed a little later than it is due."""


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """What one account bears."""

    rate_per_s: float = 10.0
    in_flight_max: int = 8


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When an account counts as in trouble, and how it is probed then."""

    failures_max: int = 5
    probe_first_s: float = 1.0
    probe_max_s: float = 30.0


@dataclass(slots=True)
class _Track:
    next_at: float = 0.0
    closed_until: float = 0.0
    in_flight: int = 0
    failures: int = 0
    took_s: float = 0.0
    line_until: float = 0.0
    kept_until: float = 0.0


@dataclass(slots=True)
class Pace:
    """All accounts' pace in one process."""

    limits: Mapping[Account, PaceLimits]
    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    _tracks: dict[Account, _Track] = field(default_factory=dict)

    def reserve(self, account: Account, now: float, *, within_s: float, runs_out: bool = False) -> float | None:
        """Take a place for one request: seconds to wait before it, or None when there is none within that time.

        A place that was given must be left with `leave`. `runs_out`: a replay is safe for a limited time only, so a
        place that is kept for such a case (see `keep_a_place`) may be taken.
        """
        track, limits = self._track(account), self._limits(account)
        wait_s, places = self.ready_in_s(account, now), self._places(account)
        if now < track.kept_until and not runs_out and places > 1:
            places -= 1
        if wait_s > within_s or track.in_flight >= places:
            return None
        if not track.in_flight:
            track.line_until = now  # nobody is being asked: whoever was sent away is no longer behind anybody
        track.in_flight += 1
        track.next_at = now + wait_s + max(1.0 / limits.rate_per_s, self._probe_gap_s(track))
        return wait_s

    def ready_in_s(self, account: Account, now: float) -> float:
        """Seconds until this account may be asked again."""
        track = self._track(account)
        return max(track.next_at - now, track.closed_until - now, 0.0)

    def line_up(self, account: Account, now: float) -> float:
        """Seconds after which a case that found no place comes again: behind all that were sent away before it.

        Were each to come again after the same moment, a storm would be claimed and given back many times for every
        request that can be made, and take the time of those that are being asked.
        """
        track = self._track(account)
        turn_s = max(1.0 / self._limits(account).rate_per_s, track.took_s / self._places(account))
        begins = max(track.line_until, now + self.ready_in_s(account, now))
        track.line_until = begins + turn_s / LINE_HURRY
        return begins - now

    def keep_a_place(self, account: Account, comes_at: float) -> None:
        """A case whose time runs out found no place and comes again then: cases that can wait leave it one.

        They may be many, and those that look for what is not there come again for ever: without this it is a matter of
        luck whether a replay is made while it is still safe.
        """
        track = self._track(account)
        track.kept_until = max(track.kept_until, comes_at + KEPT_S)

    def leave(self, account: Account, *, took_s: float | None = None) -> None:
        """The request is over, whatever came of it; `took_s` says how long it held its place."""
        track = self._track(account)
        track.in_flight = max(track.in_flight - 1, 0)
        if took_s is not None:
            track.took_s += (max(took_s, 0.0) - track.took_s) * TOOK_WEIGHT

    def answered(self, account: Account) -> None:
        """The provider gave a real answer: the account is well."""
        self._track(account).failures = 0

    def failed(self, account: Account, now: float, *, retry_after_s: float | None = None) -> None:
        """No answer, a server error or a plea for fewer requests."""
        track = self._track(account)
        track.failures += 1
        track.closed_until = max(track.closed_until, now + (retry_after_s or 0.0))
        track.next_at = max(track.next_at, now + self._probe_gap_s(track))

    def in_trouble(self, account: Account) -> bool:
        """True while the breaker lets only probes through."""
        return self._track(account).failures >= self.breaker.failures_max

    def _places(self, account: Account) -> int:
        return 1 if self.in_trouble(account) else self._limits(account).in_flight_max

    def _probe_gap_s(self, track: _Track) -> float:
        beyond = track.failures - self.breaker.failures_max
        if beyond < 0:
            return 0.0
        return min(self.breaker.probe_first_s * 2.0 ** min(beyond, 30), self.breaker.probe_max_s)

    def _track(self, account: Account) -> _Track:
        return self._tracks.setdefault(account, _Track())

    def _limits(self, account: Account) -> PaceLimits:
        return self.limits.get(account, PaceLimits())
