"""The only place that speaks HTTP to providers.

Sends a request once: no retry, no redirect, no cookie, no proxy or password from the environment, one deadline over
everything, a capped answer. A gate is asked before headers are put together and again right before the first byte; it
lets one request through once, so that no retry inside the client can ever become a second send.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from yarl import URL

from outbox_relay.providers.exchange import MAX_ANSWER_BYTES, Answer, Phase, Transmission, unpacked
from outbox_relay.providers.resolving import PatientNames

_KEEPALIVE_S: Final = 4.0
"""Shorter than what servers usually keep, so that a POST rarely meets a connection that is being closed."""


class GateClosed(Exception):
    """The request may not be sent (any more); not one byte of it was written."""


class Gate:
    """Decides in the last moment whether the bytes may leave, and remembers how far the request got."""

    __slots__ = ("_may_send", "_passed", "phase", "released")

    def __init__(self, may_send: Callable[[], bool]) -> None:
        self._may_send = may_send
        self._passed = False
        self.phase = Phase.NOT_SENT
        self.released = False

    def early(self) -> None:
        """First check: refuse before headers are even put together. Raises GateClosed."""
        if self._passed:
            raise GateClosed("a second send of the same request was refused")
        self._check()

    def first_byte(self) -> None:
        """Last check, with nothing between it and the write. Raises GateClosed."""
        if self._passed:
            raise GateClosed("a second send of the same request was refused")
        self._check()
        self._passed = True
        self.phase = Phase.SENT

    def _check(self) -> None:
        if not self._may_send():
            self.released = True
            raise GateClosed("the lease no longer covers the deadline")


class _GatedBody(aiohttp.BytesPayload):
    """The request's bytes behind the gate: headers wait in the client's buffer for the first write of the body."""

    def __init__(self, content: bytes, gate: Gate) -> None:
        super().__init__(content)
        self._gate = gate

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002 - aiohttp's own signature
        self._gate.first_byte()
        # The body is these bytes whole, and the declared length is theirs: nothing is to be cut.
        await writer.write(self._value)


@lru_cache(maxsize=1024)
def _parsed(url: str) -> URL:
    """Most operations have one address for all their actions."""
    return URL(url, encoded=True)


class HttpClient:
    """Two pools: a POST may reuse a connection, unless it asks for a fresh one, as every other method gets.

    aiohttp repeats a PUT, GET or DELETE by itself when a connection drops (tried: 3.14 does so on a fresh one as well).
    The gate refuses that second send; a fresh connection keeps a stale one from costing the only send there is.

    A body on the pool needs no trace hook, which costs a tenth of the exchange: its own gate is asked with the headers
    still in the buffer. `bodiless` shares the pool and has the hook.
    """

    def __init__(
        self, pooled: aiohttp.ClientSession, bodiless: aiohttp.ClientSession, fresh: aiohttp.ClientSession
    ) -> None:
        self._pooled = pooled
        self._bodiless = bodiless
        self._fresh = fresh

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
        gate = Gate(may_send)
        reading = _Reading(max_answer_bytes)
        failure: str | None = None
        try:
            async with asyncio.timeout(deadline_s):
                session = self._fresh if fresh_connection or method != "POST" else self._bodiless
                if body is not None and session is self._bodiless:
                    session = self._pooled
                    gate.early()
                async with session.request(
                    method,
                    _parsed(url),
                    headers=headers,
                    data=None if body is None else _GatedBody(body, gate),
                    allow_redirects=False,
                    trace_request_ctx=gate if body is not None else _Bodiless(gate),
                ) as response:
                    await _read(response, reading)
        except TimeoutError:
            failure = "deadline_passed"
        except (aiohttp.ClientError, GateClosed, OSError, ValueError, asyncio.IncompleteReadError) as error:
            # ValueError covers what the client's parser or URL handling raises outside its own family.
            failure = _name(error, gate)
        return Transmission(
            phase=reading.phase or gate.phase,
            answer=reading.answer(),
            failure=failure,
            duration_s=time.monotonic() - started,
            released=gate.released and gate.phase is Phase.NOT_SENT,
        )


async def _read(response: aiohttp.ClientResponse, reading: _Reading) -> None:
    """Read to the end or to the cap; what was read before a break stays in `reading`."""
    reading.begin(response)
    content = response.content
    if content.is_eof():
        # A small answer has arrived whole with its headers.
        chunk = content.read_nowait()
        if chunk and reading.take(chunk):
            response.close()
            return
    else:
        async for chunk in content.iter_any():
            if reading.take(chunk):
                response.close()
                return
    reading.end()


@dataclass(frozen=True, slots=True)
class _Bodiless:
    """Marks a request without a body: its headers are written right after the trace hook, so that is the last check."""

    gate: Gate


class _Reading:
    """The answer as far as it was read. Survives the exception that ends the reading."""

    __slots__ = ("_body", "_cap", "_capped", "_headers", "_status", "phase")

    def __init__(self, cap: int) -> None:
        self.phase: Phase | None = None
        self._cap = cap
        self._status = 0
        self._headers: dict[str, tuple[str, ...]] = {}
        self._body = bytearray()
        self._capped = False

    def begin(self, response: aiohttp.ClientResponse) -> None:
        self.phase = Phase.HEADERS
        self._status = response.status
        headers = self._headers
        for name, value in response.headers.items():
            lower = name.lower()
            headers[lower] = (*headers[lower], value) if lower in headers else (value,)

    def take(self, chunk: bytes) -> bool:
        """Keep a chunk up to the cap; True when enough was read."""
        self.phase = Phase.BODY
        self._body += chunk[: self._cap - len(self._body)]
        if len(self._body) == self._cap:
            self._capped = True
            self.phase = Phase.COMPLETE
        return self._capped

    def end(self) -> None:
        self.phase = Phase.COMPLETE

    def answer(self) -> Answer | None:
        if self.phase is None:
            return None
        body, cut = unpacked(bytes(self._body), self._headers.get("content-encoding", ()), self._cap)
        return Answer(self._status, self._headers, body, self.phase is Phase.COMPLETE, capped=self._capped or cut)


def _name(error: Exception, gate: Gate) -> str:
    """A name for people. What it means is decided by the phase."""
    if gate.released:
        return "lease_too_short"
    if gate.phase is not Phase.NOT_SENT:
        return "answer_malformed" if isinstance(error, aiohttp.http.HttpProcessingError) else "connection_lost"
    named: tuple[tuple[type[Exception], str], ...] = (
        (aiohttp.ClientConnectorCertificateError, "tls_failed"),
        (aiohttp.ClientSSLError, "tls_failed"),
        (ssl.SSLError, "tls_failed"),
        (aiohttp.ClientConnectorDNSError, "dns_failed"),
        (aiohttp.InvalidURL, "url_unusable"),
    )
    for kind, name in named:
        if isinstance(error, kind):
            return name
    refused = isinstance(error, OSError) and isinstance(error.__cause__ or error, ConnectionRefusedError)
    return "connect_refused" if refused else "connect_failed"


async def _on_headers(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceRequestHeadersSentParams
) -> None:
    """Runs with the connection in hand, before the client has put a single header together (tested by bytes)."""
    given = context.trace_request_ctx
    if isinstance(given, _Bodiless):
        given.gate.first_byte()
    else:
        given.early()


class _Resolver(AbstractResolver):
    def __init__(self) -> None:
        self._names = PatientNames()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=at, port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST)
            for kind, proto, at in await self._names.ask(host, int(family))
        ]

    async def close(self) -> None:
        self._names.close()


@asynccontextmanager
async def open_http_client(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpClient]:
    """The process's one client. `tls` replaces the system's trust, for a private authority."""
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_on_headers)
    verify: ssl.SSLContext | bool = True if tls is None else tls
    names = _Resolver()
    pooled = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S, ssl=verify, resolver=names)
    fresh = aiohttp.TCPConnector(limit=0, force_close=True, ssl=verify, resolver=names)
    try:
        async with (
            _session(pooled) as reusing,
            _session(pooled, trace, owner=False) as bodiless,
            _session(fresh, trace) as connecting,
        ):
            yield HttpClient(reusing, bodiless, connecting)
    finally:
        await names.close()


def _session(
    connector: aiohttp.TCPConnector, *traces: aiohttp.TraceConfig, owner: bool = True
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        connector_owner=owner,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "outbox-relay", "Accept-Encoding": "identity"},
        trust_env=False,
        auto_decompress=False,
        raise_for_status=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
        trace_configs=list(traces),
    )
