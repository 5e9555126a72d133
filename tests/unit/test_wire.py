"""One write per request, and one answer to it: what the relay's own HTTP client must hold where others guess."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest

from outbox_relay.attempt.request import Request
from outbox_relay.attempt.send import Phase, Sender, open_http_client
from outbox_relay.providers import connections
from tests.unit.attempts import RawServer, http, raw_server, read_request
from tests.unit.test_send import CERTIFICATE, answer_ok, hang, request_to, send_to

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def answering(answer: bytes) -> Any:
    """Every request of a connection gets these bytes; the connection stays open."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(answer)
            await writer.drain()

    return script


def ending(answer: bytes) -> Any:
    """The first request of a connection gets these bytes, then the connection ends."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()

    return script


def remembering(writers: list[asyncio.StreamWriter]) -> Any:
    """As `answering`, with the server's ends of the connections in hand."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while True:
            await read_request(reader)
            writer.write(http("200 OK", b"asked"))
            await writer.drain()

    return script


async def send_twice(server: RawServer) -> tuple[Any, Any]:
    async with open_http_client() as client:
        sender = Sender(client)
        return tuple([await sender.send(request_to(server.url), deadline_s=2) for _ in range(2)])  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (CHUNKED + b"3\r\nabc\r\n2;note=x\r\nde\r\n0\r\nDigest: x\r\n\r\n", b"abcde"),
        (http("200 OK", b"abcde", "X-Empty:"), b"abcde"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + http("200 OK", b"abcde"), b"abcde"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
async def test_an_answer_reads_the_same_however_its_bytes_are_cut(answer: bytes, body: bytes) -> None:
    async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for cut in range(1, len(answer)):
            await read_request(reader)
            writer.write(answer[:cut])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(answer[cut:])
            await writer.drain()

    async with raw_server(in_pieces) as server, open_http_client() as client:
        for _ in range(1, len(answer)):
            sent = await Sender(client).send(request_to(server.url), deadline_s=45)
            assert (sent.phase, sent.failure, sent.answer.complete, sent.answer.body) == (  # type: ignore[union-attr]
                Phase.COMPLETE,
                None,
                True,
                body,
            )
        assert len(server.received) == 1, "every answer left the connection fit for the next request"


async def test_an_answer_of_no_declared_length_ends_with_its_connection() -> None:
    async with raw_server(ending(b"HTTP/1.0 200 OK\r\n\r\nabcde")) as server:
        sent = await send_to(server.url)
    assert (sent.phase, sent.answer.complete, sent.answer.body) == (Phase.COMPLETE, True, b"abcde")


@pytest.mark.parametrize("header", ["", "Content-Length: 0\r\n"])
async def test_an_answer_without_content_is_whole_with_its_head(header: str) -> None:
    async with raw_server(ending(f"HTTP/1.1 204 No Content\r\n{header}\r\n".encode())) as server:
        sent = await send_to(server.url)
    assert (sent.phase, sent.answer.complete, sent.answer.body) == (Phase.COMPLETE, True, b"")


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"3\r\nabcXX0\r\n\r\n",
        CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent Length: 3\r\n\r\nabc",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
async def test_an_answer_with_doubtful_framing_is_never_complete(answer: bytes) -> None:
    async with raw_server(ending(answer)) as server:
        sent = await send_to(server.url)
        assert server.requests() == 1
    assert sent.bytes_may_have_left
    assert sent.failure in {"answer_malformed", "connection_lost"}
    assert sent.answer is None or not sent.answer.complete


@pytest.mark.parametrize(
    "answer",
    [
        http("200 OK", b"first") + http("200 OK", b"planted"),
        http("200 OK", b"first") + b"no HTTP at all",
        http("200 OK", b"first", "Connection: close"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nfirst",
    ],
)
async def test_a_connection_with_more_or_with_nothing_to_come_is_not_used_again(answer: bytes) -> None:
    async with raw_server(answering(answer)) as server:
        sent = await send_twice(server)
        assert len(server.received) == 2
    assert [(one.phase, one.answer.body) for one in sent] == [(Phase.COMPLETE, b"first")] * 2


@pytest.mark.parametrize("seen", [True, False])
async def test_bytes_that_nobody_asked_for_are_not_the_next_answer(seen: bool) -> None:
    """Not even while the event loop has not seen them: they wait in the kernel when the next request starts."""
    writers: list[asyncio.StreamWriter] = []
    async with raw_server(remembering(writers)) as server, open_http_client() as client:
        sender = Sender(client)
        await sender.send(request_to(server.url), deadline_s=2)
        writers[0].write(http("200 OK", b"planted"))
        if seen:
            await asyncio.sleep(0.05)
        sent = await sender.send(request_to(server.url), deadline_s=5)
        assert (len(server.received), server.requests()) == (2, 2)
    assert sent.answer is not None
    assert sent.answer.body == b"asked"


@pytest.mark.parametrize("seen", [True, False])
async def test_a_connection_that_the_server_closed_while_idle_costs_no_request(seen: bool) -> None:
    writers: list[asyncio.StreamWriter] = []
    async with raw_server(remembering(writers)) as server, open_http_client() as client:
        sender = Sender(client)
        first = await sender.send(request_to(server.url), deadline_s=2)
        writers[0].write_eof()
        if seen:
            await asyncio.sleep(0.05)
        second = await sender.send(request_to(server.url), deadline_s=5)
        assert (len(server.received), server.requests()) == (2, 2)
    assert (first.phase, second.phase) == (Phase.COMPLETE, Phase.COMPLETE)


async def test_an_earlier_answer_is_not_that_of_a_request_which_the_lease_stopped() -> None:
    """The connection is in hand when the last question is answered no; it stays good for the next request."""
    async with raw_server(answer_ok) as server, open_http_client() as client:
        sender = Sender(client)
        answers = iter([True, True, True, False, True, True])
        sent = [
            await sender.send(request_to(server.url), deadline_s=2, may_send=lambda: next(answers)) for _ in range(3)
        ]
        assert (len(server.received), server.requests()) == (1, 2)
    assert [(one.phase, one.released, one.answer is None) for one in sent] == [
        (Phase.COMPLETE, False, False),
        (Phase.NOT_SENT, True, True),
        (Phase.COMPLETE, False, False),
    ]


async def test_a_late_answer_is_never_taken_for_the_next_ones() -> None:
    late = asyncio.Event()

    async def slow_then_quick(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if b"/slow" in request:
            await late.wait()
        writer.write(http("200 OK", b"slow" if b"/slow" in request else b"quick"))
        await writer.drain()

    async with raw_server(slow_then_quick) as server, open_http_client() as client:
        sender = Sender(client)
        given_up = await sender.send(request_to(f"{server.url}/slow"), deadline_s=0.2)
        late.set()
        sent = await sender.send(request_to(f"{server.url}/quick"), deadline_s=5)
        assert len(server.received) == 2
    assert (given_up.phase, given_up.failure) == (Phase.SENT, "deadline_passed")
    assert sent.answer is not None
    assert sent.answer.body == b"quick"


async def test_a_cancelled_request_leaves_no_connection_behind() -> None:
    async with raw_server(hang) as server, open_http_client() as client:
        task = asyncio.create_task(Sender(client).send(request_to(server.url), deadline_s=30))
        await asyncio.wait_for(server.arrived.wait(), 45)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not client._connections._idle


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE_S", 0.05)
    ended = asyncio.Event()

    async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http("200 OK", b"{}"))
        await reader.read()
        ended.set()

    async with raw_server(until_closed) as server, open_http_client() as client:
        await Sender(client).send(request_to(server.url), deadline_s=2)
        await asyncio.wait_for(ended.wait(), 45)
        assert not client._connections._idle


async def test_an_answer_before_the_body_was_written_ends_the_connection() -> None:
    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http("200 OK", b"{}"))
        await asyncio.Event().wait()

    async with raw_server(refuse_early) as server, open_http_client() as client:
        sent = await Sender(client).send(request_to(server.url, body=b"x" * 50_000_000), deadline_s=45)
        assert not client._connections._idle
    assert (sent.phase, sent.failure) == (Phase.COMPLETE, None)


@pytest.mark.parametrize("name", ["X-Note", "Authorization"])
@pytest.mark.parametrize(
    "value", ["a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\rb", "a\0b", "\u00e9", "a\r\n\r\nPOST / HTTP/1.1"]
)
async def test_a_header_value_cannot_become_a_header(name: str, value: str) -> None:
    await refused_unsent({name: value})


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "Connection", "Expect", "a b", "a:b", ""]
)
async def test_a_header_cannot_frame_the_request(name: str) -> None:
    await refused_unsent({name: "1"})


async def test_a_header_cannot_stand_twice_in_two_spellings() -> None:
    await refused_unsent({"Idempotency-Key": "1", "idempotency-key": "2"})


async def refused_unsent(headers: dict[str, str]) -> None:
    async with raw_server(answer_ok) as server, open_http_client() as client:
        request = Request("POST", server.url, headers, b"{}", "key-1", "team_1", ())
        sent = await Sender(client).send(request, deadline_s=2)
        assert server.received == []
    assert (sent.phase, sent.failure) == (Phase.NOT_SENT, "url_unusable")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/",
        "http:///path",
        "http://user:secret@127.0.0.1/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/a\r\nX: 1",
        "http://127.0.0.1/\u00e9",
        "http://a..b/",
        f"http://{'a' * 300}/",
    ],
)
async def test_an_address_that_is_none_is_not_sent_to(url: str) -> None:
    sent = await send_to(url)
    assert (sent.phase, sent.answer) == (Phase.NOT_SENT, None)
    assert sent.failure in {"url_unusable", "dns_failed", "connect_refused"}


async def test_headers_of_the_contract_stand_instead_of_ours_and_the_length_is_ours() -> None:
    async with raw_server(answer_ok) as server, open_http_client() as client:
        request = Request("POST", server.url, {"accept": "x/y", "User-Agent": "me"}, b"{}", "k", "t", ())
        await Sender(client).send(request, deadline_s=2)
        head = bytes(server.received[0]).partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert sorted(head[1:]) == [
        "Accept-Encoding: identity",
        "Content-Length: 2",
        f"Host: 127.0.0.1:{server.port}",
        "User-Agent: me",
        "accept: x/y",
    ]


async def test_a_server_that_speaks_first_gets_nothing_or_is_not_believed() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await read_request(reader)

    async with raw_server(greet) as server:
        sent = await send_to(server.url)
    assert sent.answer is None
    assert sent.failure in {"answer_malformed", "connection_lost", "connect_failed"}


def named(monkeypatch: pytest.MonkeyPatch, name: str, *addresses: str) -> None:
    """Let a name stand for these addresses."""
    lookup = socket.getaddrinfo

    def found(host: str, *given: Any, **more: Any) -> Any:
        if host != name:
            return lookup(host, *given, **more)
        return [answer for address in addresses for answer in lookup(address, *given, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", found)


async def test_the_next_address_of_a_name_is_tried_when_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "several.invalid", "127.0.0.9", "127.0.0.8", "127.0.0.1")
    async with raw_server(answer_ok) as server:
        sent = await send_to(f"http://several.invalid:{server.port}/")
        assert f"Host: several.invalid:{server.port}\r\n".encode() in bytes(server.received[0])
    assert sent.phase is Phase.COMPLETE


async def test_a_name_of_which_every_address_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "several.invalid", "127.0.0.9", "127.0.0.8")
    async with raw_server(answer_ok) as server:
        sent = await send_to(f"http://several.invalid:{server.port}/")
    assert (sent.phase, sent.failure) == (Phase.NOT_SENT, "connect_refused")


async def test_an_ipv6_address_is_reached_and_named_in_brackets() -> None:
    arrived: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await read_request(reader))
        writer.write(http("200 OK", b"{}"))
        await writer.drain()
        writer.close()

    try:
        listening = await asyncio.start_server(serve, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        sent = await send_to(f"http://[::1]:{port}/")
    assert sent.phase is Phase.COMPLETE
    assert f"Host: [::1]:{port}\r\n".encode() in arrived[0]


def serving_tls() -> ssl.SSLContext:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(CERTIFICATE)
    return serving


async def test_a_trusted_certificate_for_this_host_carries_requests_on_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named(monkeypatch, "wrong.example", "127.0.0.1")
    trust = ssl.create_default_context(cafile=str(CERTIFICATE))
    async with raw_server(answer_ok, tls=serving_tls()) as server, open_http_client(tls=trust) as client:
        url = f"https://wrong.example:{server.port}/"
        sent = [await Sender(client).send(request_to(url), deadline_s=45) for _ in range(3)]
        assert (len(server.received), server.requests()) == (1, 3)
    assert {one.phase for one in sent} == {Phase.COMPLETE}


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"])
async def test_a_connection_that_ends_after_its_handshake_may_have_carried_the_request(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    named(monkeypatch, "wrong.example", "127.0.0.1")
    trust = ssl.create_default_context(cafile=str(CERTIFICATE))
    async with raw_server(ending(answer), tls=serving_tls()) as server:
        sent = await send_to(f"https://wrong.example:{server.port}/", tls=trust, deadline_s=45)
        assert server.requests() == 1
    assert (sent.bytes_may_have_left, sent.failure) == (True, "connection_lost")
    assert sent.answer is None or not sent.answer.complete


async def test_without_a_context_of_ones_own_the_systems_trust_decides() -> None:
    async with raw_server(answer_ok, tls=serving_tls()) as server:
        sent = await send_to(f"https://127.0.0.1:{server.port}/", deadline_s=45)
        assert server.requests() == 0
    assert (sent.phase, sent.failure) == (Phase.NOT_SENT, "tls_failed")
