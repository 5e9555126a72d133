"""What the sender shows of every kind of network trouble, against a server of raw bytes."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import threading
import time
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.attempt.request import Request
from outbox_relay.attempt.send import Phase, Sender, open_http_client
from tests.unit.attempts import Script, http, raw_server, read_request

CERTIFICATE = Path(__file__).parent / "wrong-host.pem"
"""A key and a certificate for wrong.example, made for these tests and of no use elsewhere."""


def request_to(url: str, *, method: str = "POST", body: bytes = b'{"n": 1}', has_body: bool = True) -> Request:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer secret-value"}
    return Request(method, url, headers, body, "key-1", "team_1", ("secret-value",), has_body)


async def send_to(
    url: str, *, deadline_s: float = 2.0, may_send: Any = lambda: True, tls: Any = None, **given: Any
) -> Any:
    async with open_http_client(tls=tls) as client:
        return await Sender(client).send(request_to(url, **given), deadline_s=deadline_s, may_send=may_send)


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    while True:
        await read_request(reader)
        writer.write(http("200 OK", b'{"id": "x"}'))
        await writer.drain()


async def test_a_complete_answer_is_read_and_the_bytes_are_exact() -> None:
    async with raw_server(answer_ok) as server:
        sent = await send_to(f"{server.url}/a%2Fb?q=%20")
    assert (sent.phase, sent.failure, sent.answer.status, sent.answer.body) == (
        Phase.COMPLETE,
        None,
        200,
        b'{"id": "x"}',
    )
    head, _, body = bytes(server.received[0]).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /a%2Fb?q=%20 HTTP/1.1\r\n")
    assert body == b'{"n": 1}'


async def test_a_refused_connection_is_not_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sent = await send_to(f"http://127.0.0.1:{port}/")
    assert (sent.phase, sent.failure, sent.bytes_may_have_left) == (Phase.NOT_SENT, "connect_refused", False)


async def test_a_name_that_does_not_resolve_is_not_sent() -> None:
    sent = await send_to("http://name.invalid/")
    assert (sent.phase, sent.bytes_may_have_left) == (Phase.NOT_SENT, False)
    assert sent.failure == "dns_failed"


async def close_at_once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    writer.transport.abort()


async def read_then_close(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)


async def read_then_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    writer.transport.abort()


async def half_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    await writer.drain()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    writer.write(b"\x00\xffnonsense\r\n\r\n")
    await writer.drain()


async def megabyte_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 1_000_000 + b"\r\n\r\n")
    await writer.drain()


async def storm_of_100(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    await asyncio.Event().wait()


async def drip_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    for sign in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 1000:
        writer.write(bytes([sign]))
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "script",
    [
        close_at_once,
        read_then_close,
        read_then_reset,
        half_headers,
        garbage,
        megabyte_header,
        storm_of_100,
        hang,
        drip_headers,
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
async def test_trouble_after_the_connection_is_never_called_not_sent_and_never_sent_twice(
    script: Script, method: str
) -> None:
    async with raw_server(script) as server:
        sent = await send_to(f"{server.url}/", deadline_s=0.5, method=method, has_body=method != "GET")
        assert server.requests() <= 1
    assert sent.bytes_may_have_left
    assert sent.phase is Phase.SENT
    assert sent.answer is None
    assert sent.failure in {"connection_lost", "answer_malformed", "deadline_passed"}


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE"])
async def test_a_reused_connection_that_drops_does_not_send_again(method: str) -> None:
    async def once_then_drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http("200 OK", b"{}"))
        await writer.drain()
        await read_request(reader)

    async with raw_server(once_then_drop) as server, open_http_client() as client:
        sender = Sender(client)
        first = await sender.send(request_to(server.url), deadline_s=2)
        second = await sender.send(request_to(server.url, method=method, has_body=method != "GET"), deadline_s=0.5)
        assert first.phase is Phase.COMPLETE
        if method == "POST":
            assert len(server.received) == 1, "a POST reuses the connection"
            assert second.phase is Phase.SENT
        assert server.requests() == 2


@pytest.mark.parametrize("method", ["PUT", "GET"])
async def test_methods_other_than_post_never_reuse_a_connection(method: str) -> None:
    async with raw_server(answer_ok) as server, open_http_client() as client:
        sender = Sender(client)
        for _ in range(3):
            await sender.send(request_to(server.url, method=method, has_body=method != "GET"), deadline_s=2)
        assert len(server.received) == 3


async def test_a_body_that_breaks_off_keeps_status_and_is_not_complete() -> None:
    async def half_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"id": "x"')
        await writer.drain()

    async with raw_server(half_body) as server:
        sent = await send_to(server.url)
    assert (sent.phase, sent.answer.status, sent.answer.complete) == (Phase.BODY, 200, False)


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_dripping_body_ends_at_the_total_deadline(chunked: bool) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
        while True:
            writer.write(b"1\r\na\r\n" if chunked else b"a")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with raw_server(drip) as server:
        started = time.monotonic()
        sent = await send_to(server.url, deadline_s=0.6)
        assert time.monotonic() - started < 1.1
    assert (sent.phase, sent.failure, sent.answer.complete) == (Phase.BODY, "deadline_passed", False)


async def test_an_endless_body_is_cut_at_64_kib_and_counts_as_read() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n")
        while True:
            writer.write(b"a" * 65_536)
            await writer.drain()

    async with raw_server(endless) as server:
        sent = await send_to(server.url)
    assert (len(sent.answer.body), sent.answer.capped, sent.answer.complete) == (65_536, True, True)


async def test_a_gzip_bomb_costs_no_more_than_the_cap() -> None:
    bomb = gzip.compress(b"0" * 60_000_000)
    assert len(bomb) < 65_536

    async def explode(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http("200 OK", bomb, "Content-Encoding: gzip"))
        await writer.drain()

    async with raw_server(explode) as server:
        sent = await send_to(server.url)
    assert (len(sent.answer.body), sent.answer.capped) == (65_536, True)


async def test_a_packed_answer_is_unpacked_although_we_asked_for_none() -> None:
    async def packed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"accept-encoding: identity" in (await read_request(reader)).lower()
        writer.write(http("200 OK", gzip.compress(b'{"id": "x"}'), "Content-Encoding: gzip"))
        await writer.drain()

    async with raw_server(packed) as server:
        sent = await send_to(server.url)
    assert sent.answer.body == b'{"id": "x"}'


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed_and_takes_no_credentials_along(status: str) -> None:
    async with raw_server(answer_ok) as elsewhere:

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(http(status, b"", f"Location: {elsewhere.url}/latest/meta-data"))
            await writer.drain()

        async with raw_server(redirect) as server:
            sent = await send_to(server.url)
        assert sent.answer.status == int(status[:3])
        assert elsewhere.bytes_received == 0


async def test_cookies_are_neither_kept_nor_sent() -> None:
    async def with_cookie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            assert b"cookie:" not in (await read_request(reader)).lower()
            writer.write(http("200 OK", b"{}", "Set-Cookie: session=1; Path=/"))
            await writer.drain()

    async with raw_server(with_cookie) as server, open_http_client() as client:
        for _ in range(2):
            sent = await Sender(client).send(request_to(server.url), deadline_s=2)
            assert sent.answer is not None
            assert sent.answer.status == 200


async def test_a_proxy_from_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with raw_server(answer_ok) as server:
        assert (await send_to(server.url)).answer.status == 200


async def test_an_early_answer_before_the_body_was_read_is_an_answer() -> None:
    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http("413 Too Large", b'{"error": "too large"}', "Connection: close"))
        await writer.drain()
        await asyncio.sleep(0.2)

    async with raw_server(refuse_early) as server:
        sent = await send_to(server.url, body=b"x" * 300_000)
    assert (sent.phase, sent.answer.status) == (Phase.COMPLETE, 413)


async def test_interim_answers_are_passed_over() -> None:
    async def interim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + http("201 Created", b"{}")
        )
        await writer.drain()

    async with raw_server(interim) as server:
        assert (await send_to(server.url)).answer.status == 201


async def test_repeated_headers_keep_every_value() -> None:
    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http("429 Slow", b"", "Retry-After: 1", "Retry-After: 7"))
        await writer.drain()

    async with raw_server(twice) as server:
        assert (await send_to(server.url)).answer.headers["retry-after"] == ("1", "7")


async def test_tls_trouble_is_not_sent() -> None:
    """The server speaks no TLS: the handshake fails before a request can leave."""

    async def not_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with raw_server(not_tls) as server:
        sent = await send_to(f"https://127.0.0.1:{server.port}/")
        assert b"Authorization" not in bytes(server.received[0])
    assert (sent.phase, sent.bytes_may_have_left) == (Phase.NOT_SENT, False)


async def test_a_handshake_that_hangs_is_not_sent_and_ends_at_the_deadline() -> None:
    async with raw_server(hang) as server:
        sent = await send_to(f"https://127.0.0.1:{server.port}/", deadline_s=0.4)
    assert (sent.phase, sent.failure) == (Phase.NOT_SENT, "deadline_passed")


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
async def test_a_lease_that_no_longer_covers_the_deadline_lets_not_one_byte_leave(method: str) -> None:
    async with raw_server(answer_ok) as server:
        lease = Lease(boottime(), 1.0)
        sent = await send_to(server.url, method=method, has_body=method != "GET", may_send=lambda: lease.covers(2.0))
        assert server.bytes_received == 0
    assert (sent.phase, sent.released, sent.failure) == (Phase.NOT_SENT, True, "lease_too_short")


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_the_very_last_check_stands_between_the_headers_and_the_first_write(method: str) -> None:
    """The first question is answered yes, the second no: a stall in between still lets no byte leave."""
    answers = iter([True, False])
    async with raw_server(answer_ok) as server:
        sent = await send_to(server.url, method=method, may_send=lambda: next(answers))
        assert server.bytes_received == 0
    assert (sent.phase, sent.released) == (Phase.NOT_SENT, True)


async def test_a_lease_is_also_checked_on_a_reused_connection() -> None:
    async with raw_server(answer_ok) as server, open_http_client() as client:
        sender = Sender(client)
        await sender.send(request_to(server.url), deadline_s=2)
        before = server.bytes_received
        sent = await sender.send(request_to(server.url), deadline_s=2, may_send=lambda: False)
        assert (len(server.received), server.bytes_received) == (1, before)
        again = await sender.send(request_to(server.url), deadline_s=2)
    assert (sent.phase, sent.released, again.phase) == (Phase.NOT_SENT, True, Phase.COMPLETE)


async def test_a_cancelled_send_is_cancelled() -> None:
    async with raw_server(hang) as server:
        task = asyncio.create_task(send_to(server.url, deadline_s=30))
        await asyncio.wait_for(server.arrived.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_one_slow_provider_does_not_slow_another() -> None:
    async with raw_server(hang) as slow, raw_server(answer_ok) as quick, open_http_client() as client:
        sender = Sender(client)
        waiting = [asyncio.create_task(sender.send(request_to(slow.url), deadline_s=5)) for _ in range(50)]
        durations = [(await sender.send(request_to(quick.url), deadline_s=5)).duration_s for _ in range(20)]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert max(durations) < 1.0


def test_a_lease_counts_from_before_the_claim_and_needs_the_whole_deadline() -> None:
    lease = Lease(boottime() - 20.5, 30.0)
    assert not lease.covers(10.0)
    assert lease.covers(9.0)


async def test_a_name_server_that_hangs_for_one_provider_does_not_hold_up_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case F32. The threads that look up names are few: fifty askers of one name hold one of them."""
    asked: list[str] = []
    go_on = threading.Event()
    lookup = socket.getaddrinfo

    def slow(host: str, *given: Any, **named: Any) -> Any:
        asked.append(host)
        if host == "slow.invalid":
            go_on.wait(10)
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return lookup(host, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        async with raw_server(answer_ok) as server, open_http_client() as client:
            sender = Sender(client)
            hung = [sender.send(request_to("http://slow.invalid/"), deadline_s=0.5) for _ in range(50)]
            waiting = [asyncio.create_task(one) for one in hung]
            quick = await sender.send(request_to(f"http://localhost:{server.port}/"), deadline_s=2)
            given_up = await asyncio.gather(*waiting)
    finally:
        go_on.set()
    assert (quick.phase, quick.answer is not None) == (Phase.COMPLETE, True)
    assert quick.duration_s < 0.5
    assert {(sent.phase, sent.failure) for sent in given_up} == {(Phase.NOT_SENT, "deadline_passed")}
    assert asked.count("slow.invalid") == 1


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_certificate_that_is_untrusted_or_for_another_host_is_not_sent_to(trusted: bool) -> None:
    """Case F32. Trusted, it still names wrong.example; untrusted, it is nobody's."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(CERTIFICATE)
    trust = ssl.create_default_context(cafile=str(CERTIFICATE)) if trusted else None
    async with raw_server(answer_ok, tls=serving) as server:
        sent = await send_to(f"https://127.0.0.1:{server.port}/", tls=trust)
        assert server.requests() == 0
    assert (sent.phase, sent.failure) == (Phase.NOT_SENT, "tls_failed")


async def test_no_bytes_of_a_provider_make_the_sender_raise() -> None:
    """Seeded garbage, alone and in the middle of a good answer."""
    random = Random(20261130)
    good = http("200 OK", b'{"id": "x"}', "Content-Type: application/json", "Transfer-Encoding: chunked")

    async def noise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        answer = bytearray(random.choice([good, http("200 OK", b"{}"), b"HTTP/1.1 200 OK\r\n\r\n"]))
        for _ in range(random.randrange(1, 6)):
            answer[random.randrange(len(answer))] = random.randrange(256)
        writer.write(bytes(answer[: random.randrange(1, len(answer) + 1)]))
        await writer.drain()

    async with raw_server(noise) as server, open_http_client() as client:
        sender = Sender(client)
        sent = [await sender.send(request_to(server.url), deadline_s=1) for _ in range(300)]
        assert server.requests() == 300
    assert all(one.bytes_may_have_left for one in sent)


async def test_an_endless_answer_and_a_bomb_cost_little_memory() -> None:
    """Case F26."""
    bomb = gzip.compress(b"0" * 60_000_000)

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/bomb" in await read_request(reader):
            writer.write(http("200 OK", bomb, "Content-Encoding: gzip"))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n" + b"a" * 200_000)
        await writer.drain()

    async with raw_server(both) as server, open_http_client() as client:
        tracemalloc.start()
        try:
            for path in ("/bomb", "/endless", "/bomb", "/endless"):
                await Sender(client).send(request_to(server.url + path), deadline_s=2)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 20_000_000
