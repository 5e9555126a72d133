"""Looks up names of providers on threads of its own, one at a time per name.

A name server that hangs for one provider may hold one thread, never the threads that others need.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

_THREADS: Final = 64
_Found: TypeAlias = "list[tuple[socket.AddressFamily, int, int, str, tuple[str, int]]]"


class PatientResolver(AbstractResolver):
    """Joins the question about a name that is already under way, also after its asker has given up."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="resolve")
        self._running: dict[tuple[str, int], asyncio.Future[_Found]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a name. Raises OSError when it has none."""
        question = (host, int(family))
        running = self._running.get(question)
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._pool, _ask, host, int(family))
            self._running[question] = running
            running.add_done_callback(lambda done: self._forget(question, done))
        found = await asyncio.shield(running)
        return [
            ResolveResult(
                hostname=host, host=address[0], port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST
            )
            for kind, _, proto, _, address in found
        ]

    def _forget(self, question: tuple[str, int], done: asyncio.Future[_Found]) -> None:
        self._running.pop(question, None)
        if not done.cancelled():
            done.exception()  # read here, because everybody who asked may have given up

    async def close(self) -> None:
        """Let go of the threads; one that still waits for a name server ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _ask(host: str, family: int) -> _Found:
    # Without AI_ADDRCONFIG, which hides `localhost` on a machine that has no other network.
    found = socket.getaddrinfo(host, 0, family=family, type=socket.SOCK_STREAM)
    return [(kind, stream, proto, name, (str(at[0]), int(at[1]))) for kind, stream, proto, name, at in found]
