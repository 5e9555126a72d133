"""A TCP proxy that spoils connections on purpose, for servers that cannot be told to misbehave.

It knows enough of HTTP/1.1 to tell whether a request or an answer is whole, and nothing about providers. Each accepted
connection takes the next mode from the queue, else the standing one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Self


class Mode(StrEnum):
    """What happens to one connection."""

    PASS = "pass"  # noqa: S105 - not a password
    CUT_BEFORE_FORWARD = "cut_before_forward"
    """Read the request, forward nothing, close."""
    CUT_AFTER_ANSWER = "cut_after_answer"
    """Forward the request, take the server's whole answer, close without passing it on."""
    HANG = "hang"
    """Read the request, forward nothing, say nothing until closed."""
    HANG_AFTER_ANSWER = "hang_after_answer"
    """Forward the request, take the server's whole answer, say nothing until closed."""
    HALF_ANSWER = "half_answer"
    """Pass on the first half of the server's answer, then close."""
    GARBAGE = "garbage"
    """Forward the request, and answer with bytes that are no HTTP."""
    DEAF = "deaf"
    """Accept the connection and never read from it."""


class Proxy:
    """`async with Proxy(host, port) as proxy:` listens on 127.0.0.1:`proxy.port` in front of host:port."""

    def __init__(self, host: str, port: int, *, mode: Mode = Mode.PASS) -> None:
        self.mode = mode
        self.port = 0
        self.served: list[Mode] = []
        """The mode that each connection with a request met, in order."""
        self.reached = asyncio.Event()
        """Set whenever a mode other than PASS has done its part."""
        self._target = (host, port)
        self._queue: deque[Mode] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def script(self, modes: Iterable[Mode]) -> None:
        """Give the next connections one mode each."""
        self._queue.extend(modes)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.drop_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop_all(self) -> None:
        """Close every open connection, held ones included."""
        for task in self._tasks:
            task.cancel()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="proxy-connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                # One connection may carry many requests; each takes its own mode.
                while await self._one_exchange(reader, writer):
                    pass
        finally:
            writer.transport.abort()

    async def _one_exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request. True when the connection is good for another."""
        if self.mode is Mode.DEAF and not self._queue:
            self._count(Mode.DEAF)
            await asyncio.Event().wait()
        request = await read_message(reader)
        mode = self._queue.popleft() if self._queue else self.mode
        if mode in (Mode.CUT_BEFORE_FORWARD, Mode.HANG, Mode.DEAF):
            self._count(mode)
            if mode is not Mode.CUT_BEFORE_FORWARD:
                await asyncio.Event().wait()
            return False
        answer = await self._forward(request)
        self._count(mode)
        if mode is Mode.HANG_AFTER_ANSWER:
            await asyncio.Event().wait()
        writer.write(_spoiled(answer, mode))
        await writer.drain()
        if mode is not Mode.PASS:
            writer.close()
            await writer.wait_closed()
        return mode is Mode.PASS

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._target)
        try:
            writer.write(request)
            await writer.drain()
            return await read_message(reader, until_close=True)
        finally:
            writer.close()

    def _count(self, mode: Mode) -> None:
        self.served.append(mode)
        if mode is not Mode.PASS:
            self.reached.set()


class ThreadedProxy:
    """A proxy with a thread and an event loop of its own, for callers that wait for something else meanwhile."""

    def __init__(self, host: str, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._proxy = Proxy(host, port)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._proxy.port}"

    @property
    def served(self) -> tuple[Mode, ...]:
        """The modes that requests have met so far."""
        return tuple(self._proxy.served)

    def script(self, *modes: Mode) -> None:
        """Give the next requests one mode each."""
        self._loop.call_soon_threadsafe(self._proxy.script, modes)

    def drop_all(self) -> None:
        """Close every open connection."""
        self._loop.call_soon_threadsafe(self._proxy.drop_all)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.__aenter__(), self._loop).result(10)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.__aexit__(None, None, None), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def _spoiled(answer: bytes, mode: Mode) -> bytes:
    """What the caller gets to see of the server's answer."""
    match mode:
        case Mode.PASS:
            return answer
        case Mode.HALF_ANSWER:
            return answer[: len(answer) // 2]
        case Mode.GARBAGE:
            return b"\x00\x01 this is not HTTP \xff\r\n\r\n"
        case _:
            return b""


async def read_message(reader: asyncio.StreamReader, *, until_close: bool = False) -> bytes:
    """Read one whole HTTP/1.1 message. `until_close` also reads a body that ends with the connection (answers)."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = {
        name.strip().lower(): value.strip().lower()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if b"content-length" in fields:
        return head + await reader.readexactly(int(fields[b"content-length"]))
    if fields.get(b"transfer-encoding") == b"chunked":
        return head + await _read_chunks(reader)
    bodyless = head.split(b" ", 2)[1:2] in ([b"204"], [b"304"])
    return head + (await reader.read() if until_close and not bodyless else b"")


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size_line = await reader.readuntil(b"\r\n")
        size = int(size_line.split(b";")[0], 16)
        chunk = await reader.readexactly(size + 2) if size else await reader.readuntil(b"\r\n")
        body += size_line + chunk
        if size == 0:
            return body
