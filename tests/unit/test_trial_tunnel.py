"""The tunnel changes nothing, and holds back what a client sends when it is told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from outbox_relay.trial.processes import wait_until
from outbox_relay.trial.tunnel import Tunnel


@pytest.fixture
def echo() -> Iterator[tuple[str, list[bytes]]]:
    """A server that echoes on one connection, as a DSN, and what it has received."""
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while chunk := connection.recv(1024):
                received.append(chunk)
                connection.sendall(chunk)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"postgresql://someone@127.0.0.1:{listener.getsockname()[1]}/db", received
    thread.join(5)
    listener.close()


def connect(dsn: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(dsn.rpartition(":")[2].removesuffix("/db"))), timeout=5)


def test_a_write_that_is_held_back_arrives_whole_when_it_is_let_go(echo: tuple[str, list[bytes]]) -> None:
    dsn, received = echo
    with Tunnel(dsn) as tunnel:
        assert tunnel.dsn.startswith("postgresql://someone@127.0.0.1:")
        with connect(tunnel.dsn) as client:
            client.sendall(b"before")
            assert client.recv(1024) == b"before"
            tunnel.hold()
            client.sendall(b"the outcome")
            wait_until(lambda: tunnel.holds(b"outcome"), timeout_s=5, what="the bytes to be held")
            assert received == [b"before"]
            tunnel.let_go()
            assert client.recv(1024) == b"the outcome"
