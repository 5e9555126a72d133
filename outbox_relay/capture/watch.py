"""Watches the connector and restarts its task when it failed: Connect itself leaves a failed task failed for ever.

It restarts what failed and nothing else, slower each time in vain, because some failures (a lost slot, a missing
publication) need a person; dispatch goes on from the ledger meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from outbox_relay.capture.connect_api import ConnectApi, ConnectorStatus
from outbox_relay.errors import OutboxError

OnStatus = Callable[[ConnectorStatus | None, str | None], None]
"""Called at every look with the status (None: no such connector, or no answer) and the trouble (None: it runs)."""

_BACKOFF_MAX_S = 300.0

_log = logging.getLogger("outbox_relay.capture")


class ConnectorWatch:
    """Looks every `every_s` seconds; a restart in vain doubles the wait before the next one, up to five minutes."""

    def __init__(self, api: ConnectApi, name: str, *, on_status: OnStatus, every_s: float = 10.0) -> None:
        self._api = api
        self._name = name
        self._on_status = on_status
        self._every_s = every_s
        self._backoff_s = every_s
        self._wait_s = 0.0
        self.restarts = 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Look until told to stop; never raises for a Connect that does not answer."""
        while not stopping.is_set():
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await stopping.wait()

    async def look(self) -> None:
        """One look, and a restart when one is due."""
        try:
            status = await asyncio.to_thread(self._api.status, self._name)
            trouble = _trouble(self._name, status)
            self._on_status(status, trouble)
            if status is not None and status.failed:
                await self._restart(status)
            elif status is not None and status.runs:
                self._backoff_s, self._wait_s = self._every_s, 0.0
        except OutboxError as error:
            self._on_status(None, str(error))

    async def _restart(self, status: ConnectorStatus) -> None:
        if self._wait_s > 0:
            self._wait_s -= self._every_s
            return
        _log.warning("restarting the failed task of connector %s: %s", self._name, status.failed[0].trouble)
        self.restarts += 1
        self._wait_s = self._backoff_s
        self._backoff_s = min(self._backoff_s * 2, _BACKOFF_MAX_S)
        await asyncio.to_thread(self._api.restart_failed, self._name)


def _trouble(name: str, status: ConnectorStatus | None) -> str | None:
    if status is None:
        return f"there is no connector {name}"
    if status.failed:
        return f"task of connector {name} failed: {status.failed[0].trouble}"
    return None if status.runs else f"connector {name} is {status.state}"
