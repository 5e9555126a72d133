"""Looks up names of providers on threads of its own, one at a time per name.

A name server that hangs for one provider may hold one thread, never the threads that others need.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

_THREADS: Final = 64
_Found: TypeAlias = "list[tuple[socket.AddressFamily, int, str]]"


class PatientNames:
    """Joins the question about a name that is already under way, also after its asker has given up."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="resolve")
        self._running: dict[tuple[str, int], asyncio.Future[_Found]] = {}

    async def ask(self, host: str, family: int) -> _Found:
        """Family, protocol and address of everything a name stands for. Raises OSError when it has none."""
        question = (host, family)
        running = self._running.get(question)
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._pool, _ask, host, family)
            self._running[question] = running
            running.add_done_callback(lambda done: self._forget(question, done))
        return await asyncio.shield(running)

    def _forget(self, question: tuple[str, int], done: asyncio.Future[_Found]) -> None:
        self._running.pop(question, None)
        if not done.cancelled():
            done.exception()  # read here, because everybody who asked may have given up

    def close(self) -> None:
        """Let go of the threads; one that still waits for a name server ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _ask(host: str, family: int) -> _Found:
    # Without AI_ADDRCONFIG, which hides `localhost` on a machine that has no other network.
    found = socket.getaddrinfo(host, 0, family=family, type=socket.SOCK_STREAM)
    return [(kind, proto, str(address[0])) for kind, _, proto, _, address in found]
