"""The gate of one account, with a clock in hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.dispatch.limits import (
    PAUSE_MAX_S,
    PROBE_FIRST_S,
    PROBE_MAX_S,
    TROUBLES_TO_OPEN,
    AccountGate,
    Effect,
    Limits,
)


def open_breaker(gate: AccountGate, now: float = 0.0) -> None:
    """Fail one attempt after the other until the breaker opens."""
    for _ in range(TROUBLES_TO_OPEN):
        gate.finish(Effect.TROUBLE, gate.start(1, now), now)


def test_never_more_in_flight_than_slots() -> None:
    gate = AccountGate(Limits(slots=3), now=0)
    assert gate.room(0) == 3
    permit = gate.start(3, 0)
    assert gate.room(0) == 0
    gate.finish(Effect.HEALTHY, permit, 0)
    assert gate.room(0) == 1


def test_a_claim_that_got_less_than_it_asked_gives_the_rest_back() -> None:
    gate = AccountGate(Limits(slots=3, rate_per_s=30), now=0)
    permit = gate.start(3, 0)
    gate.give_back(2, permit)
    assert gate.in_flight == 1
    assert gate.room(0) == 2


@given(
    rate=st.floats(0.1, 500),
    steps=st.lists(st.floats(0, 0.5), min_size=1, max_size=200),
)
def test_the_rate_holds_over_any_stretch_of_time(rate: float, steps: list[float]) -> None:
    """Whatever the rhythm of asking: never more than the rate times the time, plus one bucket."""
    gate = AccountGate(Limits(slots=10_000, rate_per_s=rate), now=0)
    now, started = 0.0, 0
    for step in steps:
        now += step
        count = gate.room(now)
        gate.start(count, now)
        started += count
        assert started <= rate * now + gate.limits.burst + 1e-6


def test_a_drained_bucket_says_when_the_next_token_comes() -> None:
    gate = AccountGate(Limits(slots=10, rate_per_s=2), now=0)
    gate.start(1, 0)
    wait_s = gate.opens_in(0)
    assert wait_s == pytest.approx(0.5)
    assert gate.room(0.5) == 1


def test_the_breaker_opens_after_consecutive_troubles_only() -> None:
    gate = AccountGate(Limits(slots=10), now=0)
    for _ in range(3):
        for _ in range(TROUBLES_TO_OPEN - 1):
            gate.finish(Effect.TROUBLE, gate.start(1, 0), 0)
        gate.finish(Effect.HEALTHY, gate.start(1, 0), 0)
    assert gate.room(0) > 0
    open_breaker(gate)
    assert gate.open
    assert gate.room(0) == 0


def test_a_refused_account_opens_the_breaker_at_once() -> None:
    """With a revoked credential every action that is sent goes on hold: one is enough to know."""
    gate = AccountGate(Limits(slots=10), now=0)
    gate.finish(Effect.BLOCKED, gate.start(1, 0), 0)
    assert gate.open
    assert gate.room(0) == 0


def test_an_open_breaker_lets_one_probe_through_with_growing_pauses() -> None:
    gate = AccountGate(Limits(slots=10), now=0)
    open_breaker(gate)
    now, gaps = 0.0, []
    for _ in range(15):
        wait_s = gate.opens_in(now)
        assert wait_s is not None
        gaps.append(wait_s)
        now += wait_s
        assert gate.room(now) == 1
        permit = gate.start(1, now)
        assert gate.room(now + 1000) == 0, "one probe at a time"
        assert gate.opens_in(now) is None, "only its end can help"
        gate.finish(Effect.TROUBLE, permit, now)
    assert gaps[0] == PROBE_FIRST_S
    assert gaps == sorted(gaps)
    assert gaps[-1] == PROBE_MAX_S


def test_a_probe_that_found_nothing_to_send_may_be_tried_again() -> None:
    gate = AccountGate(Limits(slots=10), now=0)
    open_breaker(gate)
    permit = gate.start(1, 10)
    gate.give_back(1, permit)
    assert gate.room(10) == 1


def test_a_success_closes_the_breaker_and_the_door_opens_slowly() -> None:
    gate = AccountGate(Limits(slots=8), now=0)
    open_breaker(gate)
    gate.finish(Effect.HEALTHY, gate.start(1, 10), 10)
    assert not gate.open
    rooms = []
    for _ in range(5):
        room = gate.room(10)
        rooms.append(room)
        permit = gate.start(room, 10)
        for _ in range(room):
            gate.finish(Effect.HEALTHY, permit, 10)
    assert rooms == [2, 4, 8, 8, 8]


def test_answers_from_before_the_breaker_opened_do_not_move_it() -> None:
    """Sixty-four attempts that were in flight when it opened are one observation, not sixty-four more."""
    gate = AccountGate(Limits(slots=64), now=0)
    permit = gate.start(64, 0)
    for _ in range(63):
        gate.finish(Effect.TROUBLE, permit, 0)
    assert gate.opens_in(0) == PROBE_FIRST_S
    gate.finish(Effect.HEALTHY, permit, 0)
    assert gate.open


@pytest.mark.parametrize("asked_s", [-5.0, 0.0, 1.5, 120.0, 1e30, math.inf, math.nan, None])
def test_any_retry_after_pauses_within_bounds_and_never_less_than_asked(asked_s: float | None) -> None:
    gate = AccountGate(Limits(slots=4), now=100)
    gate.finish(Effect.THROTTLED, gate.start(1, 100), 100, retry_after_s=asked_s)
    wait_s = gate.opens_in(100) or 0.0
    assert 0 <= wait_s <= PAUSE_MAX_S
    if asked_s is not None and not math.isnan(asked_s):
        assert wait_s >= min(PAUSE_MAX_S, asked_s)
    else:
        assert wait_s > 0


def test_an_earlier_longer_pause_is_not_shortened() -> None:
    gate = AccountGate(Limits(slots=4), now=0)
    permit = gate.start(2, 0)
    gate.finish(Effect.THROTTLED, permit, 0, retry_after_s=60)
    gate.finish(Effect.THROTTLED, permit, 1, retry_after_s=1)
    assert gate.paused(59.9)
    assert not gate.paused(60)


def test_a_burst_of_throttled_answers_is_one_wish() -> None:
    gate = AccountGate(Limits(slots=64), now=0)
    permit = gate.start(64, 0)
    for _ in range(64):
        gate.finish(Effect.THROTTLED, permit, 0)
    assert gate.opens_in(0) == pytest.approx(1.0)
    assert gate.room(1) == 32


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(Effect)),
            st.floats(0, 100),
            st.none() | st.floats(allow_nan=True, allow_infinity=True),
            st.booleans(),
        ),
        max_size=200,
    )
)
def test_whatever_happens_the_gate_keeps_its_bounds_and_never_locks_for_ever(
    story: list[tuple[Effect, float, float | None, bool]],
) -> None:
    gate = AccountGate(Limits(slots=5, rate_per_s=7), now=0)
    now = 0.0
    flying = []
    for effect, step, retry_after_s, take in story:
        now += step
        room = gate.room(now)
        assert 0 <= room <= 5 - gate.in_flight
        if take and room:
            flying += [gate.start(room, now)] * room
        elif flying:
            gate.finish(effect, flying.pop(), now, retry_after_s=retry_after_s)
        assert gate.in_flight == len(flying)
    for permit in flying:
        gate.finish(Effect.NEUTRAL, permit, now)
    wait_s = gate.opens_in(now)
    assert (gate.room(now) > 0) != (wait_s is not None)
    assert gate.room(now + (wait_s or 0)) > 0


def test_limits_that_allow_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="slots"):
        Limits(slots=0)
    with pytest.raises(ValueError, match="rate_per_s"):
        Limits(slots=1, rate_per_s=0)
