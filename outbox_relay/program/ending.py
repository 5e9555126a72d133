"""What a program died of, if it did: the first failure makes the exit code.

A loop that fails ends the program in good order; it is never a silent half-working process.
"""

from __future__ import annotations

import asyncio

from outbox_relay.errors import OutboxError
from outbox_relay.telemetry import Logger, log_failure


class Ending:
    """Collects the ends of the loops."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._failure: Exception | None = None

    def must_come(self, error: Exception) -> None:
        """Something failed that no loop died of; what fails after it is not told again."""
        if self._failure is None:
            log_failure(self._log, "must_stop", error)
        self._failure = self._failure or error

    async def of(self, loop: asyncio.Task[None]) -> None:
        """Wait for a loop's end. Never raises for it: the other loops must still end in good order."""
        try:
            await loop
        except Exception as error:  # noqa: BLE001 - it makes the exit code
            log_failure(self._log, "loop_failed", error)
            self._failure = self._failure or error

    @property
    def exit_code(self) -> int:
        """0 when nothing failed."""
        if self._failure is None:
            return 0
        return self._failure.exit_code if isinstance(self._failure, OutboxError) else 1
