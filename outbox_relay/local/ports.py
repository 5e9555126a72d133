"""Free ports on loopback for servers that must be told their port before they start.

Chosen below the range that the kernel gives to outgoing connections, so that none of those takes a port between the
choice and the start.
"""

from __future__ import annotations

import random
import socket

from outbox_relay.errors import DependencyDown

_LOWEST, _HIGHEST = 20_000, 31_999
_TRIES = 200


def free_port() -> int:
    """A TCP port that nobody listens on at 127.0.0.1 right now."""
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        port = chance.randint(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise DependencyDown("no free port was found on 127.0.0.1", hint=f"free some ports in {_LOWEST}-{_HIGHEST}")


def accepts(port: int, timeout_s: float = 0.5) -> bool:
    """True when something accepts connections on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s):
            return True
    except OSError:
        return False
