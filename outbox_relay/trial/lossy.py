"""A tunnel to PostgreSQL that loses the answer to a part of the calls of some functions, after they were committed.

It reads just enough of the protocol (version 3) to know when a statement's transaction is over: every call of the
programs is one statement and one transaction. Seeded. It never changes a byte of what it passes on.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65536
LOOPBACK = "127.0.0.1"
DATA_ROW = ord("D")
READY_FOR_QUERY = ord("Z")


class LossyTunnel:
    """`with LossyTunnel(dsn, functions, rate=0.3, seed=1) as tunnel:` gives `tunnel.dsn`.

    Of the calls of `functions` that return a row, `rate` are answered by a closed connection.
    """

    def __init__(self, dsn: str, functions: Sequence[str], *, rate: float, seed: int) -> None:
        self._target = urlsplit(dsn)
        self._needles = {name: f"outbox.{name}(".encode() for name in functions}
        self._rate = rate
        self._random = random.Random(seed)
        self._guard = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.answered: Counter[str] = Counter()
        """Calls that returned a row, by function, lost ones included."""
        self.lost: Counter[str] = Counter()

    @property
    def dsn(self) -> str:
        """The database through this tunnel."""
        user = f"{self._target.netloc.rpartition('@')[0]}@" if "@" in self._target.netloc else ""
        port = self._listener.getsockname()[1]
        return urlunsplit(self._target._replace(netloc=f"{user}{LOOPBACK}:{port}"))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="lossy-tunnel", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()
        with self._guard:
            for each in self._sockets:
                _close(each)

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._target.hostname or LOOPBACK, self._target.port or 5432))
                with self._guard:
                    self._sockets += [client, server]
                call = _Call()
                for pump in (self._ask, self._answer):
                    threading.Thread(target=pump, args=(client, server, call), name="lossy-pump", daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, call: _Call) -> None:
        with suppress(OSError):  # either end went away
            while chunk := client.recv(CHUNK_BYTES):
                # Noted before it is passed on: the answer cannot come first.
                call.function = next((name for name, text in self._needles.items() if text in chunk), call.function)
                server.sendall(chunk)
        _close(client, server)

    def _answer(self, client: socket.socket, server: socket.socket, call: _Call) -> None:
        held = bytearray()
        with suppress(OSError):  # either end went away
            while chunk := server.recv(CHUNK_BYTES):
                held += chunk
                if call.function is not None:
                    kinds = _whole_messages(held)
                    if READY_FOR_QUERY not in kinds:
                        continue  # not committed yet
                    if self._is_lost(call.function, returned_row=DATA_ROW in kinds):
                        break
                    call.function = None
                client.sendall(held)
                held.clear()
        _close(client, server)

    def _is_lost(self, function: str, *, returned_row: bool) -> bool:
        if not returned_row:
            return False
        with self._guard:
            self.answered[function] += 1
            lost = self._random.random() < self._rate
            self.lost[function] += lost
        return lost


class _Call:
    """What one connection is being asked."""

    function: str | None = None


def _whole_messages(answer: bytearray) -> set[int]:
    """The kinds of the messages that have arrived whole."""
    kinds, at = set(), 0
    while at + 5 <= len(answer):
        end = at + 1 + int.from_bytes(answer[at + 1 : at + 5])
        if end > len(answer):
            break
        kinds.add(answer[at])
        at = end
    return kinds


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
