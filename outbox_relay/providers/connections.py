"""Connections to providers: names looked up, addresses tried, TLS checked, and what is still good kept for a while.

Nothing here writes a byte of a request. A kept connection is given out only if nothing has arrived on it and nobody
closes it, so that a request rarely meets one that is being closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import defaultdict, deque
from functools import partial
from typing import Final, TypeAlias

import aiohappyeyeballs

from outbox_relay.providers.resolving import PatientNames
from outbox_relay.providers.wire import Origin, Wire

KEEPALIVE_S: Final = 4.0
"""Shorter than what servers usually keep."""
_NAMES_S: Final = 10.0
_NEXT_ADDRESS_S: Final = 0.25
_Address: TypeAlias = "tuple[socket.AddressFamily, int, str]"


class NameUnknown(Exception):
    """The host's name stands for no address."""


class Connections:
    """All connections of the process to providers. As many as are asked for; the callers are limited."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._names = PatientNames()
        self._known: dict[str, tuple[float, list[_Address]]] = {}
        self._idle: defaultdict[Origin, deque[Wire]] = defaultdict(deque)
        self._sweep: asyncio.TimerHandle | None = None

    def take(self, origin: Origin) -> Wire | None:
        """A kept connection that is still good, the one used last first; None when there is none."""
        idle = self._idle.get(origin)
        while idle:
            wire = idle.pop()
            if wire.quiet and time.monotonic() - wire.idle_since < KEEPALIVE_S:
                return wire
            wire.abort()
        return None

    def keep(self, wire: Wire) -> None:
        """Keep a connection for the next request, or close it when it is good for none."""
        if not wire.free():
            wire.abort()
            return
        wire.idle_since = time.monotonic()
        self._idle[wire.origin].append(wire)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S, self._close_old)

    async def connect(self, origin: Origin) -> Wire:
        """A new connection. Raises NameUnknown, ssl.SSLError, OSError or ValueError (no usable name)."""
        loop = asyncio.get_running_loop()
        found = await self._addresses(origin.host)
        tried = [(kind, socket.SOCK_STREAM, proto, "", (at, origin.port)) for kind, proto, at in found]
        connected = await aiohappyeyeballs.start_connection(tried, happy_eyeballs_delay=_NEXT_ADDRESS_S)
        _, wire = await loop.create_connection(
            partial(Wire, origin),
            sock=connected,
            ssl=self._tls if origin.tls else None,
            server_hostname=origin.host.rstrip(".") if origin.tls else None,
        )
        return wire

    async def _addresses(self, host: str) -> list[_Address]:
        try:
            literal = ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return [(socket.AF_INET if literal.version == 4 else socket.AF_INET6, socket.IPPROTO_TCP, host)]
        until, found = self._known.get(host, (0.0, []))
        if time.monotonic() >= until:
            try:
                found = await self._names.ask(host, socket.AF_UNSPEC)
            except OSError as error:
                raise NameUnknown(host) from error
            self._known[host] = (time.monotonic() + _NAMES_S, found)
        return found

    def _close_old(self) -> None:
        now = time.monotonic()
        for origin, idle in list(self._idle.items()):
            while idle and now - idle[0].idle_since >= KEEPALIVE_S:
                idle.popleft().abort()
            if not idle:
                del self._idle[origin]
        again = min((idle[0].idle_since for idle in self._idle.values()), default=None)
        self._sweep = None
        if again is not None:
            wait_s = max(0.05, again + KEEPALIVE_S - now)
            self._sweep = asyncio.get_running_loop().call_later(wait_s, self._close_old)

    def close(self) -> None:
        """Close what is kept and let go of the threads that look up names."""
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            for wire in idle:
                wire.abort()
        self._idle.clear()
        self._names.close()
