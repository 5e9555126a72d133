"""The least an HTTP client can do: one POST at a time per kept connection, and the answer's body by Content-Length.

Only for the benchmark: it knows one server, trusts its answers, and has no deadline. It shows what a client costs.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the provider closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or self._answer is None or self._answer.done():
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) >= length:
            self._buffer = b""
            self._answer.set_result(body)

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is not None:
            self._transport.write(request)
        return self._answer


class RawClient:
    """Kept connections to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._idle: list[_Connection] = []

    async def post(self, path: str, key: str, body: bytes) -> bytes:
        """Send one POST and return the answer's body."""
        connection = self._idle.pop() if self._idle else await self._connect()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer bench-api-key\r\nIdempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        answer = await connection.ask(head.encode() + body)
        self._idle.append(connection)
        return answer

    async def _connect(self) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, self._host, self._port)
        return connection
