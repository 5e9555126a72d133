"""The arithmetic of settle time, window and waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.settle import backoff_s, replay_until, seconds_until, settles_at, spaced, window_ends
from reconciler.terms import Policy, ReplayTerms, policy_for
from tests.unit.unknown_cases import BLIND, CASE, KEYED, NOKEY, POLICY, WINDOW_S, after


def test_settle_time_is_last_send_plus_processing_plus_lookup_lag() -> None:
    assert settles_at(CASE, NOKEY) == after(40 + 60 + 120)


def test_settle_time_counts_from_the_latest_attempt_that_could_still_be_sent() -> None:
    assert settles_at(replace(CASE, in_flight_until=after(5000)), NOKEY) == after(5000 + 60 + 120)


def test_settle_time_without_lookup_has_no_lag() -> None:
    assert settles_at(CASE, KEYED) == after(100)


def test_window_counts_from_the_first_attempt_less_the_margin() -> None:
    case = replace(CASE, last_attempt_at=after(5000), in_flight_until=after(5040))
    assert window_ends(case, KEYED, POLICY) == after(WINDOW_S - POLICY.margin_s)


def test_window_shorter_than_the_margin_is_no_window() -> None:
    terms = replace(KEYED, replay=ReplayTerms(window_s=POLICY.margin_s / 2, published=True))
    assert window_ends(CASE, terms, POLICY) == CASE.first_attempt_at


def test_no_key_is_no_window() -> None:
    assert window_ends(CASE, BLIND, POLICY) == CASE.first_attempt_at


@pytest.mark.parametrize(("deliver_by_s", "until_s"), [(100, 100), (2 * WINDOW_S, WINDOW_S - POLICY.margin_s)])
def test_the_agents_deadline_can_only_shorten_the_window(deliver_by_s: float, until_s: float) -> None:
    assert replay_until(replace(CASE, deliver_by=after(deliver_by_s)), KEYED, POLICY) == after(until_s)


def test_backoff_doubles_up_to_its_cap() -> None:
    waits = [backoff_s(tries, POLICY, spread=0) for tries in range(14)]
    assert waits[:4] == [2, 4, 8, 16]
    assert waits == sorted(waits)
    assert waits[-1] == POLICY.backoff_max_s


@pytest.mark.parametrize("tries", [-1, 0, 10**9])
def test_backoff_is_finite_for_any_count(tries: int) -> None:
    assert 0 < backoff_s(tries, POLICY, spread=1) <= POLICY.backoff_max_s * (1 + POLICY.spread)


def test_spread_lengthens_and_never_shortens() -> None:
    assert spaced(10, POLICY, spread=0) == 10
    assert spaced(10, POLICY, spread=1) == 10 * (1 + POLICY.spread)
    assert spaced(-5, POLICY, spread=1) == 0


def test_seconds_until_the_past_is_zero() -> None:
    assert seconds_until(after(5), after(9)) == 0


def test_default_bounds_are_those_of_the_default_deadline() -> None:
    assert policy_for(10.0) == Policy()


def test_replay_may_take_a_whole_deadline_inside_the_window() -> None:
    assert policy_for(3.0).margin_s >= 3.0
