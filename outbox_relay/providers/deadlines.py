"""The deadlines of all exchanges under way, with one timer for all of them.

An exchange ends no later than its deadline; a timer of its own for each would be set and cancelled thousands of times a
second, to ring hardly ever. Decides nothing: what ended an exchange is told by the TimeoutError, how far it had got by
its connection.
"""

from __future__ import annotations

import asyncio


class Deadlines:
    """Futures that must not wait any longer than until an instant of their event loop's clock."""

    def __init__(self) -> None:
        self._ends: dict[asyncio.Future[None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, answered: asyncio.Future[None], until: float) -> None:
        """Let `answered` raise TimeoutError at `until`, unless it is done or forgotten by then."""
        self._ends[answered] = until
        if self._timer is None or until < self._timer.when():
            self._ring_at(until, answered.get_loop())

    def forget(self, answered: asyncio.Future[None]) -> None:
        """It is over. The timer stays: it rings in vain once per deadline, not once per exchange."""
        self._ends.pop(answered, None)

    def close(self) -> None:
        """Let go of the event loop."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, until: float, loop: asyncio.AbstractEventLoop) -> None:
        self.close()
        self._timer = loop.call_at(until, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for answered in [answered for answered, until in self._ends.items() if until <= now]:
            del self._ends[answered]
            if not answered.done():
                answered.set_exception(TimeoutError())
        if self._ends:
            self._ring_at(min(self._ends.values()), loop)
