"""What looks for garbage seldom must still find it, and leave alone what the program was started with."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from outbox_relay.program import memory


@pytest.fixture
def settled() -> Iterator[None]:
    before = gc.get_threshold()
    memory.settle()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


class Cycle:
    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("settled")
def test_what_was_loaded_at_the_start_is_looked_through_no_more() -> None:
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < gc.get_freeze_count() / 2


@pytest.mark.usefixtures("settled")
def test_a_cycle_goes_away_before_many_more_are_made() -> None:
    first = weakref.ref(Cycle())
    for _ in range(2 * memory.YOUNG_MAX):
        Cycle()
    assert first() is None


@pytest.mark.usefixtures("settled")
def test_a_wave_of_claims_costs_no_look_at_all() -> None:
    looks = gc.get_stats()[0]["collections"]
    wave: list[list[list[int]]] = [[[] for _ in range(20)] for _ in range(200)]
    assert gc.get_stats()[0]["collections"] - looks <= 1
    assert wave
