"""When something may be concluded, and until when something may be sent: the arithmetic of settle time and window.

All instants are the database's. Nothing here reads a clock; randomness is passed in.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from outbox_relay.ledger.records import UnknownCase
from reconciler.terms import NoTerms, Policy, Terms


def settles_at(case: UnknownCase, terms: Terms) -> datetime:
    """The first moment at which an empty lookup can mean absence.

    Latest moment at which any attempt, replays included, could still have been sent, plus the provider's processing
    time, plus the lag of its lookup.
    """
    lag_s = terms.lookup.lag_s if terms.lookup else 0.0
    return case.in_flight_until + timedelta(seconds=terms.processing_s + lag_s)


def replay_until(case: UnknownCase, terms: Terms, policy: Policy) -> datetime:
    """The moment from which on nothing may be replayed: by the window, or by the agent's own deadline if earlier."""
    until = window_ends(case, terms, policy)
    return until if case.deliver_by is None else min(until, case.deliver_by)


def window_ends(case: UnknownCase, terms: Terms, policy: Policy) -> datetime:
    """The end of the window that the contract gives; the first attempt itself when replays are never safe.

    Counted from the first attempt, also where the provider counts from completion: a request cannot complete before it
    is sent, so the window is never taken for longer than it is.
    """
    window_s = max(0.0, terms.replay.window_s - policy.margin_s) if terms.replay else 0.0
    return case.first_attempt_at + timedelta(seconds=window_s)


def window_left_s(case: UnknownCase, terms: Terms | NoTerms, policy: Policy) -> float | None:
    """Seconds in which a replay is still safe; None where no replay ever is."""
    if isinstance(terms, NoTerms) or terms.replay is None:
        return None
    return seconds_until(replay_until(case, terms, policy), case.now)


def backoff_s(tries: int, policy: Policy, *, spread: float) -> float:
    """The wait after `tries` tries: doubling, capped, lengthened by `spread` (0 to 1) of the policy's spread.

    Never negative, never beyond the cap and its spread, whatever the count.
    """
    doubled = policy.backoff_first_s * 2.0 ** min(max(tries, 0), 30)
    return spaced(min(doubled, policy.backoff_max_s), policy, spread=spread)


def spaced(wait_s: float, policy: Policy, *, spread: float) -> float:
    """A wait lengthened at random, so that many cases do not come back at the same moment; never shortened."""
    return max(wait_s, 0.0) * (1 + policy.spread * spread)


def seconds_until(instant: datetime, now: datetime) -> float:
    """Seconds from `now` to `instant`, 0 when it has passed."""
    return max((instant - now).total_seconds(), 0.0)
