"""What every measured system must be able to do, as one small command line: each runs as a process of its own.

    python -m bench.SYSTEM migrate | enqueue COUNT PREFIX | load RATE SECONDS PREFIX | work | dismantle

Where things are comes from BENCH_* variables. The work is the same for all: a business row and the action in one
transaction, one POST of 400 bytes with the key in a header, the provider's id stored durably.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

BODY_BYTES = 400
ENQUEUE_BATCH = 500
"""Rows per transaction when a backlog is laid down."""
SEPARATORS = (", ", ": ")
"""As PostgreSQL prints jsonb, so that all systems send the same number of bytes."""

ORDERS = "create table orders (id bigint generated always as identity primary key, key text not null, provider_id text)"
"""The business table that every enqueue also writes to."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the measured system finds its database and the provider."""

    dsn: str
    provider_url: str
    in_flight: int

    @classmethod
    def from_environ(cls) -> Place:
        """Read BENCH_DSN, BENCH_PROVIDER_URL and BENCH_IN_FLIGHT."""
        return cls(
            os.environ["BENCH_DSN"],
            os.environ.get("BENCH_PROVIDER_URL", ""),
            int(os.environ.get("BENCH_IN_FLIGHT", "200")),
        )


def payload_of(key: str) -> dict[str, str]:
    """A payload whose JSON text is exactly BODY_BYTES long."""
    payload = {"to": "oncall@example.com", "text": "", "subject": key}
    padding = BODY_BYTES - len(json.dumps(payload, separators=SEPARATORS))
    return payload | {"text": "x" * padding}


def body_of(key: str) -> bytes:
    """The same as the bytes of a request."""
    return json.dumps(payload_of(key), separators=SEPARATORS).encode()


def keys_of(prefix: str, count: int) -> list[str]:
    """The keys of a backlog."""
    return [f"{prefix}-{number:08d}" for number in range(count)]


def ready() -> None:
    """Tell the harness that the worker works."""
    print(json.dumps({"event": "ready"}), flush=True)


@dataclass(frozen=True, slots=True)
class Errands:
    """The functions behind the command line. `enqueue` puts keys into one transaction with their business rows."""

    migrate: Callable[[Place], Awaitable[None]]
    open_enqueue: Callable[[Place], Awaitable[Callable[[list[str]], Awaitable[None]]]]
    work: Callable[[Place], Awaitable[None]]
    dismantle: Callable[[Place], Awaitable[None]] | None = None


async def paced(enqueue: Callable[[list[str]], Awaitable[None]], rate: float, keys: list[str]) -> dict[str, float]:
    """Enqueue one key per transaction at `rate` per second; when each commit returned, in monotonic seconds."""
    committed: dict[str, float] = {}
    began = time.monotonic()
    for number, key in enumerate(keys):
        wait_s = began + number / rate - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await enqueue([key])
        committed[key] = time.monotonic()
    return committed


async def _run(errands: Errands, arguments: list[str]) -> None:
    place = Place.from_environ()
    match arguments:
        case ["migrate"]:
            await errands.migrate(place)
        case ["enqueue", count, prefix]:
            enqueue = await errands.open_enqueue(place)
            keys = keys_of(prefix, int(count))
            for at in range(0, len(keys), ENQUEUE_BATCH):
                await enqueue(keys[at : at + ENQUEUE_BATCH])
        case ["load", rate, seconds, prefix]:
            enqueue = await errands.open_enqueue(place)
            keys = keys_of(prefix, int(float(rate) * float(seconds)))
            print(json.dumps(await paced(enqueue, float(rate), keys)), flush=True)
        case ["work"]:
            await errands.work(place)
        case ["dismantle"]:
            if errands.dismantle is not None:
                await errands.dismantle(place)
        case _:
            sys.exit(__doc__)


def main(errands: Errands) -> None:
    """Run one errand from the command line."""
    asyncio.run(_run(errands, sys.argv[1:]))
