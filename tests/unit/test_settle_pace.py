"""An account in trouble is probed, not stormed, and costs the others nothing."""

from __future__ import annotations

import itertools

import pytest

from reconciler.pace import BreakerLimits, Pace, PaceLimits

A = ("keyed", "default")
B = ("nokey", "default")


def new_pace(rate_per_s: float = 10.0, in_flight_max: int = 3) -> Pace:
    return Pace({A: PaceLimits(rate_per_s, in_flight_max)}, BreakerLimits())


def test_requests_of_one_account_keep_its_rate() -> None:
    pace = new_pace()
    waits = [pace.reserve(A, 100.0, within_s=5.0) for _ in range(3)]
    assert waits[0] == 0.0
    assert [round(wait or 0.0, 6) for wait in waits[1:]] == [0.1, 0.2]


def test_no_place_is_promised_beyond_the_time_that_is_left() -> None:
    pace = new_pace(rate_per_s=0.1)
    assert pace.reserve(A, 100.0, within_s=1.0) == 0.0
    assert pace.reserve(A, 100.0, within_s=1.0) is None
    assert pace.ready_in_s(A, 100.0) == 10.0


def test_a_hanging_account_takes_only_its_own_places() -> None:
    pace = new_pace()
    assert [pace.reserve(A, 100.0 + n, within_s=1.0) for n in range(4)] == [0.0, 0.0, 0.0, None]
    assert pace.reserve(B, 103.0, within_s=1.0) == 0.0
    pace.leave(A)
    assert pace.reserve(A, 104.0, within_s=1.0) == 0.0


def test_a_place_is_kept_for_a_case_whose_time_runs_out_and_that_found_none() -> None:
    pace = new_pace(rate_per_s=1000.0)
    assert [pace.reserve(A, 100.0, within_s=1.0) is None for _ in range(4)] == [False, False, False, True]
    assert pace.reserve(A, 100.0, within_s=1.0, runs_out=True) is None
    pace.keep_a_place(A, 105.0)
    pace.leave(A)
    assert pace.reserve(A, 104.0, within_s=1.0) is None, "it can wait"
    assert pace.reserve(B, 104.0, within_s=1.0) == 0.0, "another account's"
    assert pace.reserve(A, 105.0, within_s=1.0, runs_out=True) == 0.0
    pace.leave(A)
    assert pace.reserve(A, 107.0, within_s=1.0) == 0.0, "nobody comes any more"


def test_the_only_place_is_kept_for_nobody() -> None:
    pace = new_pace(in_flight_max=1)
    pace.keep_a_place(A, 105.0)
    assert pace.reserve(A, 104.0, within_s=1.0) == 0.0


def test_account_in_trouble_is_probed_one_at_a_time_with_growing_gaps() -> None:
    pace, now, gaps = new_pace(), 100.0, []
    for _ in range(20):
        wait = pace.reserve(A, now, within_s=100.0)
        assert wait is not None
        now += wait
        gaps.append(wait)
        if pace.in_trouble(A):
            assert pace.reserve(A, now, within_s=100.0) is None
        pace.leave(A)
        pace.failed(A, now)
    assert gaps[-1] == 30.0
    assert all(gap >= 1.0 for gap in gaps[6:])


def test_one_answer_ends_the_trouble() -> None:
    pace = new_pace()
    for _ in range(9):
        pace.failed(A, 100.0)
    assert pace.in_trouble(A)
    pace.answered(A)
    assert not pace.in_trouble(A)


def test_retry_after_closes_the_account_for_as_long_as_asked() -> None:
    pace = new_pace()
    pace.failed(A, 100.0, retry_after_s=50.0)
    assert pace.reserve(A, 120.0, within_s=10.0) is None
    assert pace.ready_in_s(A, 120.0) == 30.0
    assert pace.reserve(A, 151.0, within_s=10.0) == 0.0


def test_backward_clock_gives_no_negative_wait() -> None:
    pace = new_pace()
    assert pace.reserve(A, 100.0, within_s=5.0) == 0.0
    wait = pace.reserve(A, 99.0, within_s=5.0)
    assert wait is not None
    assert wait >= 0


def test_those_sent_away_come_back_one_behind_the_other_at_twice_the_rate_of_the_places() -> None:
    pace, now = new_pace(rate_per_s=1000.0, in_flight_max=2), 100.0
    for _ in range(2):
        pace.reserve(A, now, within_s=1.0)
    for _ in range(40):
        pace.leave(A, took_s=4.0)
        pace.reserve(A, now, within_s=1.0)
    waits = [pace.line_up(A, now) for _ in range(1000)]
    gaps = [later - sooner for sooner, later in itertools.pairwise(waits)]
    assert gaps == pytest.approx([1.0] * 999, rel=0.01)


def test_the_line_is_forgotten_once_nobody_is_being_asked() -> None:
    pace = new_pace(rate_per_s=1.0, in_flight_max=1)
    pace.reserve(A, 100.0, within_s=1.0)
    waits = [pace.line_up(A, 100.0) for _ in range(100)]
    assert waits[-1] > 40
    pace.leave(A, took_s=0.1)
    pace.reserve(A, 105.0, within_s=1.0)
    assert pace.line_up(A, 105.0) == pace.ready_in_s(A, 105.0)


def test_a_line_before_one_account_costs_another_nothing() -> None:
    pace = new_pace(rate_per_s=1.0)
    for _ in range(100):
        pace.line_up(A, 100.0)
    assert pace.line_up(B, 100.0) == 0.0
