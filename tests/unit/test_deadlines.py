"""One timer for many exchanges: each ends at its own deadline, whatever order they came in, and none before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outbox_relay.providers.deadlines import Deadlines

PATIENCE_S = 45


@pytest.mark.parametrize("far_first", [True, False])
async def test_each_ends_at_its_own_deadline_and_not_before(far_first: bool) -> None:
    loop, deadlines = asyncio.get_running_loop(), Deadlines()
    began = loop.time()
    far, near, nearer = (loop.create_future() for _ in range(3))
    given = [(far, began + 10 * PATIENCE_S), (near, began + 0.1), (nearer, began + 0.05)]
    for future, until in given if far_first else reversed(given):
        deadlines.watch(future, until)
    async with asyncio.timeout(PATIENCE_S):
        for future, until in ((nearer, began + 0.05), (near, began + 0.1)):
            with pytest.raises(TimeoutError):
                await future
            assert loop.time() >= until - 0.001
    assert not far.done()
    deadlines.close()


async def test_a_deadline_that_has_passed_already_ends_the_wait() -> None:
    loop, deadlines = asyncio.get_running_loop(), Deadlines()
    answered = loop.create_future()
    deadlines.watch(answered, loop.time() - 1)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(TimeoutError):
            await answered


async def test_what_was_answered_stays_answered_and_what_is_forgotten_is_let_go() -> None:
    loop, deadlines = asyncio.get_running_loop(), Deadlines()
    answered, forgotten, last = loop.create_future(), loop.create_future(), loop.create_future()
    for future in (answered, forgotten, last):
        deadlines.watch(future, loop.time() + 0.05)
    answered.set_result(None)
    deadlines.forget(forgotten)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(TimeoutError):
            await last
    assert answered.result() is None
    assert not forgotten.done()
    assert deadlines._ends == {}


async def test_thousands_of_exchanges_set_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, deadlines, set_at = asyncio.get_running_loop(), Deadlines(), list[float]()
    call_at = loop.call_at

    def counted(at: float, *given: Any) -> asyncio.TimerHandle:
        set_at.append(at)
        return call_at(at, *given)

    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(5000):
        answered = loop.create_future()
        deadlines.watch(answered, loop.time() + 10)
        deadlines.forget(answered)
    assert len(set_at) == 1
    deadlines.close()
