"""SIGTERM and SIGINT: the first one stops in good order, the second at once.

At once loses what is known here and nowhere else, so it says how much that is. The claims run out, and the ledger calls
them unknown.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Protocol

from outbox_relay.telemetry import Logger


class Stoppable(Protocol):
    """What a signal stops."""

    @property
    def unstored(self) -> int:
        """What only this process knows of."""

    def stop(self) -> None:
        """Claim nothing more and come to an end."""


class StopSignals:
    """From its creation on, signals are taken note of; from `forward_to` on, they stop something."""

    def __init__(self, log: Logger, *, learns: str) -> None:
        """`learns` names what would be lost, such as "outcomes"."""
        self.requested = asyncio.Event()
        self._log = log
        self._learns = learns
        self._running: Stoppable | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)

    def forward_to(self, running: Stoppable) -> None:
        """From now on a signal stops this, and one that came before does so now."""
        self._running = running
        if self.requested.is_set():
            running.stop()

    def _received(self, number: signal.Signals) -> None:
        if self.requested.is_set():
            unstored = self._running.unstored if self._running else 0
            self._log.error("stopped_at_once", signal=number.name, **{f"{self._learns}_lost": unstored})
            os._exit(128 + number)
        self._log.info("stop_requested", signal=number.name)
        self.requested.set()
        if self._running is not None:
            self._running.stop()
