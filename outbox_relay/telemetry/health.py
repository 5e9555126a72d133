"""The HTTP pages of a program: /livez, /readyz and /metrics.

Liveness says only that the program's loops turn: it never looks at a dependency, because a restart repairs none.
Readiness names each check and what to do about it. A provider's trouble never makes a program unready.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from outbox_relay.errors import SettingsError

STARTUP_S = 30.0
"""How long a loop may take to its first beat."""


class Readiness(StrEnum):
    """What a check says. Degraded still answers 200: the work goes on, slower or on the safety net."""

    READY = "ready"
    DEGRADED = "degraded"
    NOT_READY = "not_ready"


SEVERITY = (Readiness.READY, Readiness.DEGRADED, Readiness.NOT_READY)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of /readyz."""

    readiness: Readiness
    detail: str
    what_to_do: str | None


class Health:
    """What the loops last said of themselves and of what they depend on."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beats: dict[str, float] = {}
        self._checks: dict[str, Check] = {}

    def expect_beats(self, loop: str) -> None:
        """A loop of this name is about to start; it is dead if it does not beat soon."""
        self.beat(loop, within_s=STARTUP_S)

    def beat(self, loop: str, *, within_s: float) -> None:
        """A loop says that it turns and will turn again within this time."""
        self._beats[loop] = self._clock() + within_s

    def forget(self, loop: str) -> None:
        """A loop ended as planned."""
        self._beats.pop(loop, None)

    def report(self, check: str, readiness: Readiness, detail: str, what_to_do: str | None = None) -> None:
        """Replace a check's line."""
        self._checks[check] = Check(readiness, detail, what_to_do)

    def readiness_of(self, check: str) -> Readiness | None:
        """What a check last said."""
        line = self._checks.get(check)
        return line.readiness if line else None

    def alive(self) -> tuple[bool, dict[str, object]]:
        """Whether every loop beat in time, and the page's body."""
        now = self._clock()
        stalled = {loop: round(now - due, 1) for loop, due in self._beats.items() if due < now}
        loops = {loop: f"overdue by {stalled[loop]} s" if loop in stalled else "turns" for loop in self._beats}
        return not stalled, {"status": "stalled" if stalled else "alive", "loops": loops}

    def ready(self) -> tuple[Readiness, dict[str, object]]:
        """The worst of all checks, and the page's body. Without any check yet it is not ready."""
        worst = max((check.readiness for check in self._checks.values()), key=SEVERITY.index, default=SEVERITY[-1])
        checks = {name: _line(check) for name, check in sorted(self._checks.items())}
        return worst, {"status": str(worst), "checks": checks}


def _line(check: Check) -> dict[str, str]:
    advice = {"what_to_do": check.what_to_do} if check.what_to_do else {}
    return {"status": str(check.readiness), "detail": check.detail, **advice}


class HealthServer:
    """Serves the pages; `async with` starts and stops it."""

    def __init__(self, health: Health, registry: CollectorRegistry, *, host: str, port: int) -> None:
        self._health = health
        self._registry = registry
        self._host = host
        self._wanted_port = port
        app = web.Application()
        app.add_routes(
            [web.get("/livez", self._livez), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0
        """The port really listened on, once started."""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._wanted_port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise SettingsError(
                f"cannot listen on {self._host}:{self._wanted_port}: {error.strerror or error}",
                hint="set OUTBOX_LISTEN to a free address; port 0 takes any",
            ) from error
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        alive, body = self._health.alive()
        return web.json_response(body, status=200 if alive else 503)

    async def _readyz(self, _request: web.Request) -> web.Response:
        readiness, body = self._health.ready()
        return web.json_response(body, status=503 if readiness is Readiness.NOT_READY else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})
