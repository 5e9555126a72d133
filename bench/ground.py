"""Where everything is measured: one real stack, one provider process, and a fresh database for every measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import psutil
import psycopg
from psycopg import sql

from bench.systems import ROOT, System
from outbox_relay.local.stack import Stack

IN_FLIGHT = 200
ERRAND_S = 300.0
START_S = 60.0


class TrialFailed(Exception):
    """A measurement could not be made; the message says which and why."""


class Provider:
    """The provider's process, asked over HTTP."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.provider"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        line = self._process.stdout.readline() if self._process.stdout else ""
        self.url = f"http://127.0.0.1:{json.loads(line)['port']}"

    def reset(self, latency_ms: float = 0) -> None:
        """Forget everything and answer after `latency_ms` from now on."""
        self._get(f"/reset?latency_ms={latency_ms}")

    def stats(self) -> dict[str, float]:
        """requests, distinct, bytes_in, and first_at and last_at once there was a request."""
        return {name: value for name, value in self._get("/stats").items() if value is not None}

    def arrivals(self) -> dict[str, float]:
        """When each key came first, in monotonic seconds."""
        return {key: at for key, at in self._get("/arrivals").items() if at is not None}

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(10)

    def _get(self, path: str) -> dict[str, float | None]:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:  # noqa: S310 - our own process
            found: dict[str, float | None] = json.load(answer)
        return found


class Worker:
    """One started worker with its output in a file."""

    def __init__(self, argv: tuple[str, ...], environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        self.started_at = time.monotonic()
        with log.open("wb") as output:
            self._process = subprocess.Popen(argv, cwd=ROOT, env=dict(environ), stdout=output, stderr=output)
        self.process = psutil.Process(self._process.pid)

    def wait_for(self, event: str) -> None:
        """Wait until its output has a JSON line with this event."""
        wanted = f'"event": "{event}"'
        deadline = time.monotonic() + START_S
        while wanted not in self._log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise TrialFailed(f"no {event} from the worker: {self.tail()}")
            time.sleep(0.02)

    def said(self, event: str) -> dict[str, object]:
        """The last line of an event."""
        for line in reversed(self._log.read_text(errors="replace").splitlines()):
            if line.startswith(f'{{"event": "{event}"'):
                found: dict[str, object] = json.loads(line)
                return found
        raise TrialFailed(f"the worker never said {event}: {self.tail()}")

    def tail(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-1500:]

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, slots=True)
class Database:
    """One database with one system in it."""

    dsn: str
    system: System
    environ: dict[str, str]
    folder: Path

    def errand(self, *arguments: str, **environ: str) -> str:
        """Run one of the system's errands to its end and return what it printed."""
        done = subprocess.run(
            [*self.system.command, *arguments],
            cwd=ROOT,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=ERRAND_S,
            check=False,
        )
        if done.returncode:
            raise TrialFailed(f"{self.system.name} {arguments[0]} failed: {(done.stderr or done.stdout)[-1500:]}")
        return done.stdout

    @contextmanager
    def worker(self, name: str = "worker", **environ: str) -> Iterator[Worker]:
        """A running worker; it ends with the block."""
        argv = (*self.system.command, "work")
        worker = Worker(argv, {**self.environ, **environ}, self.folder / f"{self.system.name}-{name}.log")
        try:
            yield worker
        finally:
            worker.stop()


class Ground:
    """The stack and the provider. Use as a context manager."""

    def __init__(self, *, kafka: bool) -> None:
        self._kafka = kafka
        self._stack = Stack(ROOT / "build", name="bench")
        self._parts = ExitStack()
        self.folder = ROOT / "build" / "bench"
        self.folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self._parts.enter_context(self._stack)
        self._stack.start(kafka=self._kafka)
        self.provider = Provider()
        self._parts.callback(self.provider.stop)
        self.postmaster = psutil.Process(int(self._postmaster_line()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.__exit__(kind, error, trace)

    def _postmaster_line(self) -> str:
        return (self._stack.directory / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[0]

    @property
    def versions(self) -> dict[str, str]:
        """What runs here."""
        return self._stack.versions() if self._kafka else {"postgresql": self._stack.postgres.version}

    @contextmanager
    def database(self, system: System, **environ: str) -> Iterator[Database]:
        """A fresh database with the system migrated into it; dropped at the end."""
        name = f"bench_{uuid4().hex[:10]}"
        with psycopg.connect(self._stack.postgres.dsn(), autocommit=True) as owner:
            owner.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        database = Database(self._stack.postgres.dsn(name), system, self._environ(system, name, environ), self.folder)
        try:
            database.errand("migrate")
            yield database
        finally:
            self._drop(database, name)

    def _environ(self, system: System, name: str, environ: Mapping[str, str]) -> dict[str, str]:
        given = {
            "BENCH_DSN": self._stack.postgres.dsn(name),
            "BENCH_PROVIDER_URL": self.provider.url,
            "BENCH_IN_FLIGHT": str(IN_FLIGHT),
        }
        if system.kafka:
            given |= {"BENCH_KAFKA": self._stack.broker.bootstrap, "BENCH_CONNECT": self._stack.connect.url}
        return {**os.environ, **given, **system.environ, **environ}

    def _drop(self, database: Database, name: str) -> None:
        database.errand("dismantle")
        with psycopg.connect(self._stack.postgres.dsn(), autocommit=True) as owner:
            # The connector's walsender may need a moment to let go of its slot.
            owner.execute(
                "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots"
                " where database = %s and active_pid is not null",
                [name],
            )
            owner.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", [name]
            )
            owner.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
