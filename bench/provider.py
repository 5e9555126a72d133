"""A provider that is never the bottleneck: raw asyncio, its own process, everything it saw in its own memory.

It answers every POST with an id after a set latency. It checks nothing and forgets nothing until it is told to: the
effects are counted here, so that no measured system is believed about itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field

_END = b"\r\n\r\n"
_KEY = b"\r\nidempotency-key:"
_LENGTH = b"\r\ncontent-length:"
_HANGING = b"/hang"
"""A POST to this path is never answered."""


@dataclass
class Seen:
    """What arrived since the last reset. Times are CLOCK_MONOTONIC seconds, which all processes here share."""

    latency_s: float = 0.0
    requests: int = 0
    bytes_in: int = 0
    first_at: float | None = None
    last_at: float | None = None
    arrivals: dict[str, float] = field(default_factory=dict)
    """First arrival per key."""

    def note(self, key: str, size: int) -> None:
        """Count a request."""
        now = time.monotonic()
        self.requests += 1
        self.bytes_in += size
        self.last_at = now
        if self.first_at is None:
            self.first_at = now
        self.arrivals.setdefault(key, now)

    def stats(self) -> dict[str, float | int | None]:
        """The figures without the keys."""
        return {
            "requests": self.requests,
            "distinct": len(self.arrivals),
            "bytes_in": self.bytes_in,
            "first_at": self.first_at,
            "last_at": self.last_at,
        }


class Wire(asyncio.Protocol):
    """One connection: requests in, answers out, pipelining allowed."""

    def __init__(self, seen: Seen, loop: asyncio.AbstractEventLoop) -> None:
        self._seen = seen
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Nobody to answer any more."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Take every complete request out of what has arrived."""
        buffer = self._rest + data if self._rest else data
        while buffer:
            head_end = buffer.find(_END)
            if head_end < 0:
                break
            head = buffer[:head_end].lower()
            end = head_end + 4 + _number(head)
            if len(buffer) < end:
                break
            self._answer(buffer[:head_end], head, buffer[head_end + 4 : end])
            buffer = buffer[end:]
        self._rest = buffer

    def _answer(self, head: bytes, lowered: bytes, body: bytes) -> None:
        if not head.startswith(b"POST"):
            self._write(self._tell(head.split(b" ", 2)[1].decode()))
            return
        at = lowered.find(_KEY)
        end = lowered.find(b"\r\n", at + 2)
        key = head[at + len(_KEY) : end if end > 0 else None].strip().decode() if at >= 0 else ""
        self._seen.note(key, len(body))
        if head.startswith(b"POST " + _HANGING):
            return
        answer = _answer_with(f'{{"id": "msg_{self._seen.requests:012d}"}}'.encode())
        if self._seen.latency_s:
            self._loop.call_later(self._seen.latency_s, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)

    def _tell(self, target: str) -> bytes:
        path, _, query = target.partition("?")
        seen = self._seen
        if path == "/reset":
            latency_ms = float(query.partition("=")[2] or 0)
            seen.__init__(latency_s=latency_ms / 1000)  # type: ignore[misc]
        return _answer_with(json.dumps(seen.arrivals if path == "/arrivals" else seen.stats()).encode())


def _number(lowered_head: bytes) -> int:
    at = lowered_head.find(_LENGTH)
    if at < 0:
        return 0
    end = lowered_head.find(b"\r\n", at + 2)
    return int(lowered_head[at + len(_LENGTH) : end if end > 0 else None])


def _answer_with(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    loop = asyncio.get_running_loop()
    seen = Seen()
    server = await loop.create_server(lambda: Wire(seen, loop), "127.0.0.1", port, backlog=1024)
    print(json.dumps({"event": "listening", "port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(serve(parser.parse_args().port))
