"""A TCP tunnel to PostgreSQL that can hold back what a client sends: a write that is on its way and does not arrive.

Plain sockets and threads, so that it goes on while its user waits for something else. It never changes a byte.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65536
LOOPBACK = "127.0.0.1"


class Tunnel:
    """`with Tunnel(dsn) as tunnel:` gives `tunnel.dsn`, the same database by way of the tunnel."""

    def __init__(self, dsn: str) -> None:
        self._target = urlsplit(dsn)
        self._listener = socket.create_server((LOOPBACK, 0))
        self._open = threading.Event()
        self._open.set()
        self._withheld = bytearray()
        self._guard = threading.Lock()
        self._sockets: list[socket.socket] = []

    @property
    def dsn(self) -> str:
        """The database through this tunnel."""
        user = f"{self._target.netloc.rpartition('@')[0]}@" if "@" in self._target.netloc else ""
        port = self._listener.getsockname()[1]
        return urlunsplit(self._target._replace(netloc=f"{user}{LOOPBACK}:{port}"))

    def hold(self) -> None:
        """From now on nothing that a client sends reaches the server."""
        self._open.clear()

    def let_go(self) -> None:
        """Pass on everything that was held back."""
        self._open.set()

    def holds(self, needle: bytes) -> bool:
        """Whether these bytes are among those that were held back since the last `hold`."""
        with self._guard:
            return needle in self._withheld

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="tunnel", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.set()
        self._listener.close()
        with self._guard:
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._target.hostname or LOOPBACK, self._target.port or 5432))
                with self._guard:
                    self._sockets += [client, server]
                for source, sink, is_client in ((client, server, True), (server, client, False)):
                    arguments = (source, sink, is_client)
                    threading.Thread(target=self._pump, args=arguments, name="tunnel-pump", daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:  # noqa: FBT001
        with suppress(OSError):  # either end went away
            while chunk := source.recv(CHUNK_BYTES):
                if is_client and not self._open.is_set():
                    with self._guard:
                        self._withheld += chunk
                    self._open.wait()
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
