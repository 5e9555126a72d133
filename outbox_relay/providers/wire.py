"""One connection to a provider: a request's bytes out, one answer in.

It writes when it is told to and at no other time, so what it was never given cannot have left. It never connects again
and never writes twice. Bytes that nobody asked for end the connection: they could be taken for the next answer.
"""

from __future__ import annotations

import asyncio
import select
from http import HTTPStatus
from typing import Final, NamedTuple

import httptools

from outbox_relay.providers.exchange import Answer, Phase, unpacked

MAX_HEAD_BYTES: Final = 65_536
"""Status line and headers, interim answers included. More is no answer."""


class AnswerMalformed(Exception):
    """What arrived is no HTTP/1.1 answer to this request."""


class Origin(NamedTuple):
    """Where requests of one provider go. A tuple: every exchange looks it up twice."""

    host: str
    port: int
    tls: bool


class Wire(asyncio.Protocol):
    """A connection and the answer that it is receiving.

    `phase` is NOT_SENT until `send`. What was read before a break stays for `answer`.
    """

    def __init__(self, origin: Origin) -> None:
        self.idle_since = 0.0
        self.origin = origin
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._quiet = select.poll()
        self._spoiled = True
        self._forget()

    def _forget(self) -> None:
        """Nothing of one exchange may be seen by the next."""
        self.phase = Phase.NOT_SENT
        self._done: asyncio.Future[None] | None = None
        self._cap = 0
        self._status = 0
        self._headers: dict[str, tuple[str, ...]] = {}
        self._head_bytes = 0
        self._body = bytearray()
        self._capped = False

    # What the client does.

    def send(self, request: bytes, *, max_answer_bytes: int) -> asyncio.Future[None]:
        """Write a request, now and once. The future ends with the answer, or raises what ended the connection."""
        if self._transport is None or self._done is not None or self._spoiled:
            raise ConnectionError("the connection is not free")
        self._cap = max_answer_bytes
        self._done = asyncio.get_running_loop().create_future()
        self.phase = Phase.SENT
        self._transport.write(request)
        return self._done

    def answer(self) -> Answer | None:
        """What was read; None before the headers were complete."""
        if self._status == 0:
            return None
        body, cut = unpacked(bytes(self._body), self._headers.get("content-encoding", ()), self._cap)
        return Answer(self._status, self._headers, body, self.phase is Phase.COMPLETE, capped=self._capped or cut)

    def free(self) -> bool:
        """The exchange is over and its answer was taken. False when the connection is good for no other."""
        self._forget()
        transport = self._transport
        return not (self._spoiled or transport is None or transport.is_closing() or transport.get_write_buffer_size())

    @property
    def quiet(self) -> bool:
        """True when nothing has arrived since, not even the connection's end, which the event loop may not know yet."""
        return not self._spoiled and not self._quiet.poll(0)

    def abort(self) -> None:
        """Close without waiting for what is still to be written."""
        self._spoiled = True
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands, TLS included."""
        self._transport = transport  # type: ignore[assignment]  # a stream transport, as create_connection makes
        self._parser = httptools.HttpResponseParser(self)
        self._quiet.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._spoiled = False

    def data_received(self, data: bytes) -> None:
        """Read on; what comes after the answer's end or without a question spoils the connection."""
        if self._done is None or self._done.done() or self._parser is None:
            self.abort()
            return
        if self._status == 0:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._break(AnswerMalformed("not HTTP/1.1"))
            return
        if self._status == 0 and self._head_bytes > MAX_HEAD_BYTES:
            self._break(AnswerMalformed("the head is too long"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection ends an answer that declares no length; any other is broken off."""
        self._spoiled = True
        self._transport = self._parser = None
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if exc is None and self._status and not framed:
            self._complete()
        else:
            self._break(exc or ConnectionError("the connection was closed"))

    # What the parser calls.

    def on_message_begin(self) -> None:
        """An answer begins: ours, one before or after an interim one, or a second one that nobody asked for."""
        if self._status:
            self._spoiled = True
        else:
            self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are not kept."""
        if self._status:
            return
        lower = name.decode("ascii").lower()
        text = value.decode("utf-8", "surrogateescape")
        self._headers[lower] = (*self._headers[lower], text) if lower in self._headers else (text,)

    def on_headers_complete(self) -> None:
        """The head is read; an interim one is passed over."""
        status = self._parser.get_status_code() if self._parser else 0
        if status >= 200 and not self._status:
            self._status = status
            self.phase = Phase.HEADERS
            if status == HTTPStatus.NO_CONTENT and self._announces_content():
                raise AnswerMalformed("content where there is none")

    def _announces_content(self) -> bool:
        # RFC 9110, 15.3.5 and 8.6: a 204 has no content and must not announce any. One that does was meant otherwise,
        # and its head alone would be taken for the whole answer. A length of 0 says nothing else than the status.
        lengths = self._headers.get("content-length", ("0",))
        return "transfer-encoding" in self._headers or lengths != ("0",)

    def on_body(self, body: bytes) -> None:
        """Keep a piece up to the cap, which is as good as the end."""
        if self.phase is Phase.COMPLETE:
            return
        self.phase = Phase.BODY
        self._body += body[: self._cap - len(self._body)]
        if len(self._body) == self._cap:
            self._capped = self._spoiled = True
            self._complete()

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        if self._status:
            if self._parser is None or not self._parser.should_keep_alive():
                self._spoiled = True
            self._complete()

    def _complete(self) -> None:
        if self._done is not None and not self._done.done():
            self.phase = Phase.COMPLETE
            self._done.set_result(None)

    def _break(self, error: Exception) -> None:
        self._spoiled = True
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        if self._transport is not None:
            self._transport.abort()
