"""The faulty proxy does to a connection what its mode says, and the server behind it sees what it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outbox_relay.trial.proxy import Mode, Proxy, read_message

REQUEST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nans\r\n3\r\nwer\r\n0\r\n\r\n"


@asynccontextmanager
async def server(answer: bytes = ANSWER) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that gives one answer to every request, and the requests it saw."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                seen.append(await read_message(reader))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1], seen


async def exchange(port: int, *, requests: int = 1) -> bytes:
    """Send on one connection and read until it closes, or until every whole answer has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    try:
        async with asyncio.timeout(5):
            for _ in range(requests):
                writer.write(REQUEST)
                await writer.drain()
                try:
                    got += await read_message(reader, until_close=True)
                except asyncio.IncompleteReadError as cut:
                    return got + cut.partial
                except ConnectionError:
                    return got
    finally:
        writer.close()
    return got


@pytest.mark.parametrize(
    ("mode", "forwarded", "got"),
    [
        (Mode.PASS, 1, ANSWER),
        (Mode.CUT_BEFORE_FORWARD, 0, b""),
        (Mode.CUT_AFTER_ANSWER, 1, b""),
        (Mode.HALF_ANSWER, 1, ANSWER[: len(ANSWER) // 2]),
    ],
)
async def test_a_mode_decides_what_reaches_the_server_and_what_comes_back(
    mode: Mode, forwarded: int, got: bytes
) -> None:
    async with server() as (port, seen), Proxy("127.0.0.1", port, mode=mode) as proxy:
        assert await exchange(proxy.port) == got
        assert len(seen) == forwarded
        assert seen == [REQUEST] * forwarded


async def test_garbage_is_no_http_although_the_server_acted() -> None:
    async with server() as (port, seen), Proxy("127.0.0.1", port, mode=Mode.GARBAGE) as proxy:
        assert not (await exchange(proxy.port)).startswith(b"HTTP")
        assert len(seen) == 1


@pytest.mark.parametrize(("mode", "forwarded"), [(Mode.HANG, 0), (Mode.HANG_AFTER_ANSWER, 1), (Mode.DEAF, 0)])
async def test_a_held_connection_says_nothing_until_it_is_dropped(mode: Mode, forwarded: int) -> None:
    async with server() as (port, seen), Proxy("127.0.0.1", port, mode=mode) as proxy:
        caller = asyncio.create_task(exchange(proxy.port))
        async with asyncio.timeout(5):
            await proxy.reached.wait()
        assert not caller.done()
        proxy.drop_all()
        assert await caller == b""
        assert len(seen) == forwarded


async def test_the_script_comes_before_the_standing_mode() -> None:
    async with server() as (port, seen), Proxy("127.0.0.1", port) as proxy:
        proxy.script([Mode.CUT_AFTER_ANSWER, Mode.CUT_BEFORE_FORWARD])
        assert [await exchange(proxy.port) for _ in range(3)] == [b"", b"", ANSWER]
        assert len(seen) == 2
        assert proxy.served == [Mode.CUT_AFTER_ANSWER, Mode.CUT_BEFORE_FORWARD, Mode.PASS]


async def test_one_connection_carries_many_requests_and_chunked_answers() -> None:
    async with server(CHUNKED) as (port, seen), Proxy("127.0.0.1", port) as proxy:
        assert await exchange(proxy.port, requests=3) == CHUNKED * 3
        assert len(seen) == 3
