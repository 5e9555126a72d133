"""The only place that speaks HTTP to providers.

Sends a request once: no retry, no redirect, no cookie, no proxy or password from the environment, one deadline over
everything, a capped answer. The request is put together whole; then, with the connection in hand, the lease is asked a
last time, and the next thing that happens is the one write.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from outbox_relay.providers.connections import Connections, NameUnknown
from outbox_relay.providers.deadlines import Deadlines
from outbox_relay.providers.exchange import MAX_ANSWER_BYTES, Phase, Transmission
from outbox_relay.providers.wire import AnswerMalformed, Origin, Wire

_DEFAULTS: Final = {"User-Agent": "outbox-relay", "Accept": "*/*", "Accept-Encoding": "identity"}
_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade"})
"""Headers that frame the request or lead it elsewhere: nobody but this file writes them."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"/[!-~]*")
_HOST: Final = re.compile(r"[0-9A-Za-z._:-]+")
_BODILESS: Final = frozenset({"GET", "DELETE"})


class RequestUnusable(ValueError):
    """The request cannot be written as HTTP/1.1; nothing was sent. Says nothing of values."""


class LeaseTooShort(Exception):
    """The lease no longer covers the deadline; nothing was sent."""


@dataclass(frozen=True, slots=True)
class _Address:
    origin: Origin
    host_header: str
    target: str


@lru_cache(maxsize=1024)
def _address(url: str) -> _Address:
    """Most operations have one address for all their actions. Raises RequestUnusable."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise RequestUnusable("the address is none") from error
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fits = parts.scheme in ("http", "https") and _HOST.fullmatch(host) and _TARGET.fullmatch(target)
    if not fits or "@" in parts.netloc:
        raise RequestUnusable("the address is no plain http or https address")
    named = f"[{host}]" if ":" in host else host
    usual = 443 if parts.scheme == "https" else 80
    origin = Origin(host, port or usual, parts.scheme == "https")
    return _Address(origin, named if port in (None, usual) else f"{named}:{port}", target)


@lru_cache(maxsize=1024)
def _defaults_beside(names: tuple[str, ...]) -> tuple[str, ...]:
    """The lines to add to headers of these names. Raises RequestUnusable for a name that is ours to write, or none."""
    given = {name.lower() for name in names}
    if given & _OURS or len(given) != len(names) or not all(_NAME.fullmatch(name) for name in names):
        raise RequestUnusable("a header has a name that cannot be sent")
    return tuple(f"{name}: {value}" for name, value in _DEFAULTS.items() if name.lower() not in given)


def request_bytes(
    method: str, address: _Address, headers: Mapping[str, str], body: bytes | None, *, closing: bool
) -> bytes:
    """The whole request as it goes onto the wire. Raises RequestUnusable."""
    lines = [f"{method} {address.target} HTTP/1.1", f"Host: {address.host_header}", *_defaults_beside(tuple(headers))]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if closing:
        lines.append("Connection: close")
    if body is not None or method not in _BODILESS:
        lines.append(f"Content-Length: {len(body or b'')}")
    head = "\r\n".join(lines)
    # One look at the whole: a line break inside a value would be a header, or a request, of somebody else's.
    if not head.isascii() or head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        raise RequestUnusable("a header holds characters that do not belong there")
    return f"{head}\r\n\r\n".encode("ascii") + (body or b"")


class HttpClient:
    """A POST may reuse a connection, unless it asks for a fresh one, as every other method gets.

    A connection that drops can cost a request, never send it twice: there is one write, and no other place that writes.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._deadlines = Deadlines()

    def close(self) -> None:
        """Close the connections and let go of the event loop."""
        self._deadlines.close()
        self._connections.close()

    async def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        may_send: Callable[[], bool],
        deadline_s: float,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        fresh_connection: bool = False,
    ) -> Transmission:
        """Send once and read the answer, all within `deadline_s`. Never raises for what the network does."""
        started = time.monotonic()
        fresh = fresh_connection or method != "POST"
        wire: Wire | None = None
        failure: str | None = None
        released = False
        try:
            address = _address(url)
            request = request_bytes(method, address, headers, body, closing=fresh)
            # A lease that is over already needs no connection.
            _ask(may_send)
            until = asyncio.get_running_loop().time() + deadline_s
            wire = None if fresh else self._connections.take(address.origin)
            if wire is None:
                async with asyncio.timeout_at(until):
                    wire = await self._connections.connect(address.origin)
            _ask(may_send)
            await self._in_time(wire.send(request, max_answer_bytes=max_answer_bytes), until)
        except TimeoutError:
            failure = "deadline_passed"
        except LeaseTooShort:
            failure, released = "lease_too_short", True
        except (OSError, ValueError, NameUnknown, AnswerMalformed) as error:
            failure = _name(error, Phase.NOT_SENT if wire is None else wire.phase)
        except BaseException:
            if wire is not None:
                wire.abort()
            raise
        return self._ended(wire, failure, started, released=released, fresh=fresh)

    async def _in_time(self, answered: asyncio.Future[None], until: float) -> None:
        self._deadlines.watch(answered, until)
        try:
            await answered
        finally:
            self._deadlines.forget(answered)

    def _ended(
        self, wire: Wire | None, failure: str | None, started: float, *, released: bool, fresh: bool
    ) -> Transmission:
        if wire is None:
            return Transmission(Phase.NOT_SENT, None, failure, time.monotonic() - started, released)
        phase = wire.phase
        if phase is Phase.COMPLETE:
            failure = None  # the deadline passed when everything had been read
        sent = Transmission(phase, wire.answer(), failure, time.monotonic() - started, released)
        if fresh or not (phase is Phase.COMPLETE or released):
            wire.abort()
        else:
            self._connections.keep(wire)
        return sent


def _ask(may_send: Callable[[], bool]) -> None:
    if not may_send():
        raise LeaseTooShort


def _name(error: Exception, phase: Phase) -> str:
    """A name for people. What it means is decided by the phase."""
    if phase is not Phase.NOT_SENT:
        return "answer_malformed" if isinstance(error, AnswerMalformed) else "connection_lost"
    named: tuple[tuple[type[Exception], str], ...] = (
        (ssl.SSLError, "tls_failed"),
        (NameUnknown, "dns_failed"),
        (ConnectionRefusedError, "connect_refused"),
        (ValueError, "url_unusable"),
    )
    return next((name for kind, name in named if isinstance(error, kind)), "connect_failed")


@asynccontextmanager
async def open_http_client(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpClient]:
    """The process's one client. `tls` replaces the system's trust, for a private authority."""
    client = HttpClient(Connections(tls or ssl.create_default_context()))
    try:
        yield client
    finally:
        client.close()
