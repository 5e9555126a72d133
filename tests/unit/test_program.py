"""How a program waits for its ledger, heeds signals, and what its exit code says."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass

from outbox_relay.errors import LedgerMismatch, LedgerUnavailable
from outbox_relay.ledger.pool import Ledger
from outbox_relay.program.ending import Ending
from outbox_relay.program.signals import StopSignals
from outbox_relay.program.start import _ledger_when_there
from outbox_relay.telemetry import Health, Readiness, get_logger

PATIENCE_S = 45


@dataclass
class Work:
    unstored: int = 0
    stopped: bool = False

    def stop(self) -> None:
        self.stopped = True


async def test_a_signal_ends_the_wait_for_a_ledger_that_does_not_answer() -> None:
    stopping, asked, health = asyncio.Event(), asyncio.Event(), Health()

    async def opening() -> Ledger:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(PATIENCE_S):
        waiting = asyncio.create_task(
            _ledger_when_there(opening, health=health, log=get_logger("test"), stopping=stopping)
        )
        await asked.wait()
        assert health.readiness_of("ledger") is Readiness.NOT_READY
        stopping.set()
        assert await waiting is None


async def test_a_ledger_that_is_away_is_asked_again_and_readiness_says_so() -> None:
    stopping, health, asked = asyncio.Event(), Health(), 0

    async def opening() -> Ledger:
        nonlocal asked
        asked += 1
        if asked == 2:
            stopping.set()
        raise LedgerUnavailable("away")

    async with asyncio.timeout(PATIENCE_S):
        found = await _ledger_when_there(opening, health=health, log=get_logger("test"), stopping=stopping)
    assert found is None
    assert asked == 2
    assert health.readiness_of("ledger") is Readiness.NOT_READY


async def test_a_signal_before_there_is_anything_to_stop_is_not_forgotten() -> None:
    stop, work = StopSignals(get_logger("test"), learns="outcomes"), Work()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(PATIENCE_S):
        await stop.requested.wait()
    assert not work.stopped
    stop.forward_to(work)
    assert work.stopped


async def test_the_first_loop_that_died_makes_the_exit_code() -> None:
    async def ends(error: Exception | None = None) -> None:
        if error is not None:
            raise error

    ending, first = Ending(get_logger("test")), LedgerMismatch("other accounts")
    await ending.of(asyncio.create_task(ends()))
    assert ending.exit_code == 0
    await ending.of(asyncio.create_task(ends(first)))
    await ending.of(asyncio.create_task(ends(RuntimeError("later"))))
    ending.must_come(RuntimeError("later still"))
    assert ending.exit_code == first.exit_code != 1
