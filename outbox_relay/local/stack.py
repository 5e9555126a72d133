"""The real stack on one machine without Docker: PostgreSQL, a Kafka broker, Kafka Connect with Debezium.

One object owns all of it: starts parts on demand, in any order that makes sense, and ends every process it started,
also on Ctrl-C and when its own process is killed. It holds trial data only and deletes it when it stops.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from outbox_relay.errors import DependencyDown
from outbox_relay.local.guard import Guard
from outbox_relay.local.jars import Progress, class_path, version_of
from outbox_relay.local.java import Java, find_java
from outbox_relay.local.kafka import Broker, ConnectWorker
from outbox_relay.local.postgres import Postgres


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the parts answer; empty when a part was not started."""

    postgres: str = ""
    kafka: str = ""
    connect: str = ""
    directory: str = ""
    logs: str = ""


def _silent(_: str) -> None:
    return None


class Stack:
    """Start the parts that are needed; everything ends with `stop` or the end of the `with` block.

    `build` is where data and logs go (`build/` of the project). Root's PostgreSQL runs as another user, so root's data
    go to a temporary directory instead. `durable=False` skips fsync: for tests, safe against killed processes only.
    The start methods may be called from several threads; starting what runs is a no-op.
    """

    def __init__(
        self, build: Path = Path("build"), *, durable: bool = True, progress: Progress = _silent, name: str = "stack"
    ) -> None:
        self.logs = build.absolute() / "logs" / f"{name}-{os.getpid()}"
        self.directory = _data_directory(build.absolute(), name)
        self._progress = progress
        self._guard = Guard(self.directory)
        self._stopped = threading.Event()
        self._java: tuple[Java, str] | None = None
        self._jar_lock, self._broker_lock, self._connect_lock = threading.Lock(), threading.Lock(), threading.Lock()
        data, log = self.directory / "postgres", self.logs / "postgres.log"
        self.postgres = Postgres(data, log, self._guard, durable=durable, progress=progress)
        self.broker = Broker(self.directory / "kafka", self.logs / "kafka.log", self._guard)
        self.connect = ConnectWorker(self.directory / "connect", self.logs / "connect.log", self._guard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(hurry=kind is not None)

    def start_postgres(self) -> None:
        """PostgreSQL, about one second."""
        self._refuse_after_stop()
        if not self.postgres.running:
            with self._timed("PostgreSQL"):
                self.postgres.start()

    def start_broker(self) -> None:
        """The Kafka broker; downloads the jars when they are missing."""
        with self._broker_lock:
            self._refuse_after_stop()
            if not self.broker.program.running:
                java, jars = self._jars()
                with self._timed("Kafka broker"):
                    self.broker.start(java, jars)

    def start_connect(self) -> None:
        """The Connect worker, and the broker before it."""
        self.start_broker()
        with self._connect_lock:
            self._refuse_after_stop()
            if not self.connect.program.running:
                java, jars = self._jars()
                with self._timed("Kafka Connect"):
                    self.connect.start(java, jars, self.broker.bootstrap)

    def start(self, *, kafka: bool = True) -> Addresses:
        """Everything, as parallel as it can be."""
        if not kafka:
            self.start_postgres()
            return self.addresses()
        failures: list[BaseException] = []
        thread = threading.Thread(
            target=_collect, args=(self.start_connect, failures), name="start-connect", daemon=True
        )
        thread.start()
        try:
            self.start_postgres()
        finally:
            thread.join()
        if failures:
            raise failures[0]
        return self.addresses()

    def stop(self, *, hurry: bool = False) -> None:
        """End every process, consumers of a part before the part, and delete the data. Logs stay.

        The first clean end of broker and Connect also writes their start-up caches, which takes some seconds;
        `hurry` goes without.
        """
        self._stopped.set()
        self.connect.stop(hurry=hurry)
        self.broker.stop(hurry=hurry)
        self.postgres.stop()
        self._guard.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def addresses(self) -> Addresses:
        """Where the running parts answer."""
        return Addresses(
            postgres=self.postgres.dsn() if self.postgres.running else "",
            kafka=self.broker.bootstrap if self.broker.program.running else "",
            connect=self.connect.url if self.connect.program.running else "",
            directory=str(self.directory),
            logs=str(self.logs),
        )

    def versions(self) -> dict[str, str]:
        """What runs here, for reports."""
        return {
            "postgresql": self.postgres.version,
            "kafka": version_of("kafka_2.13"),
            "connect": version_of("connect-runtime"),
            "debezium": version_of("debezium-connector-postgres"),
        }

    def _jars(self) -> tuple[Java, str]:
        with self._jar_lock:
            if self._java is None:
                self._java = find_java(), class_path(self._progress)
            return self._java

    def _refuse_after_stop(self) -> None:
        if self._stopped.is_set():
            raise DependencyDown("the local stack was stopped")

    def _timed(self, what: str) -> _Timed:
        return _Timed(what, self._progress)


class _Timed:
    """Says that a part is starting and how long it took."""

    def __init__(self, what: str, progress: Progress) -> None:
        self._what, self._progress = what, progress
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()
        self._progress(f"starting {self._what}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._progress(f"{self._what} answers after {time.monotonic() - self._began:.1f} s")


def _collect(start: Callable[[], None], failures: list[BaseException]) -> None:
    try:
        start()
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        failures.append(error)


def _data_directory(build: Path, name: str) -> Path:
    if os.geteuid() != 0:
        build.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=build))
    # PostgreSQL's user must be able to walk here; under root's home or a private checkout it could not.
    directory = Path(tempfile.mkdtemp(prefix=f"outbox-relay-{name}-"))
    directory.chmod(0o755)
    return directory
