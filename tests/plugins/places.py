"""Where the tests' PostgreSQL, broker and Connect run: started from packages, or in containers (STACK=containers).

Or they run already (STACK=given), as for a test run inside another one. The one seam between the three. Everything
else in the suite sees addresses only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import pytest

from outbox_relay.errors import OutboxError
from outbox_relay.local.jars import class_path
from outbox_relay.local.postgres import find_programs
from outbox_relay.local.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
OWNER = "outbox_owner"


class Place(Protocol):
    """One set of servers for a whole test session."""

    def prepare(self, say: Callable[[str], None], *, kafka: bool) -> None:
        """Download what is missing, before any test's time runs."""

    def start_postgres(self) -> None:
        """Start PostgreSQL, or do nothing when it runs."""

    def start_connect(self) -> None:
        """Start the broker and Connect, or do nothing when they run."""

    def dsn(self, database: str, role: str) -> str:
        """The libpq URL for the tests."""

    def capture_url(self, database: str, role: str) -> str:
        """The same, as the Connect worker must write it."""

    def bootstrap(self) -> str:
        """The broker, for the tests."""

    def connect_url(self) -> str:
        """Connect's REST address, for the tests."""

    def stop(self) -> None:
        """End everything."""


class LocalPlace:
    """The local stack, without fsync."""

    def __init__(self) -> None:
        self.stack = Stack(ROOT / "build", durable=False, name="tests")
        self._kafka: threading.Thread | None = None

    def prepare(self, say: Callable[[str], None], *, kafka: bool) -> None:
        """Fetch server and jars, and start the broker and Connect while the first tests run."""
        find_programs(say)
        if kafka:
            class_path(say)
            self._kafka = threading.Thread(target=self._start_early, name="start-connect", daemon=True)
            self._kafka.start()

    def _start_early(self) -> None:
        # The fixture starts it again, and there a failure has a test to be shown in.
        with suppress(OutboxError):
            self.stack.start_connect()

    def start_postgres(self) -> None:
        """Start PostgreSQL."""
        self.stack.start_postgres()

    def start_connect(self) -> None:
        """Start the broker and Connect, or wait for them."""
        self.stack.start_connect()

    def dsn(self, database: str, role: str) -> str:
        """The URL over loopback."""
        return self.stack.postgres.dsn(database, role)

    def capture_url(self, database: str, role: str) -> str:
        """The same: Connect runs on this machine."""
        return self.dsn(database, role)

    def bootstrap(self) -> str:
        """The broker."""
        return self.stack.broker.bootstrap

    def connect_url(self) -> str:
        """The worker."""
        return self.stack.connect.url

    def stop(self) -> None:
        """End every process, also one that is still starting."""
        if self._kafka is not None:
            self._kafka.join(timeout=120)
        self.stack.stop()


class GivenPlace:
    """Servers that somebody else started and ends: STACK_POSTGRES (the owner's URL), STACK_KAFKA, STACK_CONNECT."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def prepare(self, say: Callable[[str], None], *, kafka: bool) -> None:
        """Nothing: they run."""

    def start_postgres(self) -> None:
        """Nothing: it runs."""

    def start_connect(self) -> None:
        """Nothing: they run."""

    def dsn(self, database: str, role: str) -> str:
        """The owner's URL for another database, or without a password for another role."""
        parts = urlsplit(self._environ["STACK_POSTGRES"])
        place = parts.netloc if role == OWNER else f"{role}@{parts.netloc.rpartition('@')[2]}"
        return urlunsplit(parts._replace(netloc=place, path=f"/{database}"))

    def capture_url(self, database: str, role: str) -> str:
        """The same: whoever gave them runs on one machine."""
        return self.dsn(database, role)

    def bootstrap(self) -> str:
        """The broker."""
        return self._environ["STACK_KAFKA"]

    def connect_url(self) -> str:
        """The worker."""
        return self._environ["STACK_CONNECT"]

    def stop(self) -> None:
        """Nothing: they are somebody else's."""


def make_place() -> Place:
    """Choose by STACK: local (default), containers or given."""
    match os.environ.get("STACK", "local"):
        case "local":
            return LocalPlace()
        case "containers":
            return _containers()
        case "given":
            return GivenPlace(os.environ)
        case other:
            raise pytest.UsageError(f"STACK={other} is none of local, containers and given")


def _containers() -> Place:
    from docker.errors import DockerException  # type: ignore[import-untyped]

    from tests.plugins.containers import ContainersPlace

    try:
        return ContainersPlace()
    except DockerException as error:
        raise pytest.UsageError(f"STACK=containers needs a running Docker engine: {error}") from error
