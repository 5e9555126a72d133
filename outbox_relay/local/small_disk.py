"""A disk of a few megabytes, and a PostgreSQL server that keeps its ledger, or its WAL, on it: to be filled in a drill.

Mounting needs a right that few have; who has not got it can name a small file system of their own that is for nothing
else (OUTBOX_TRIAL_SMALL_DISK). The machine's own disk is never filled.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from outbox_relay.errors import NotPossibleHere
from outbox_relay.local.guard import Guard
from outbox_relay.local.postgres import Postgres, unprivileged_user
from outbox_relay.local.program import group_of

VARIABLE = "OUTBOX_TRIAL_SMALL_DISK"
SIZE_MB = 96
LARGEST_MB = 512
"""What is larger than this is nobody's small disk."""
CHUNK = b"\0" * 65_536
TABLESPACE = "small_disk"
# With two segments of 16 MB, what is left of a full disk of WAL is soon used up.
_LITTLE_WAL = {"max_wal_size": "32MB", "min_wal_size": "32MB", "wal_recycle": "off"}


class SmallDisk:
    """A directory on a small file system, empty at first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    def fill(self) -> None:
        """Write until nothing more fits."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        chunk = CHUNK
        try:
            while chunk:
                try:
                    os.write(descriptor, chunk)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    chunk = chunk[: len(chunk) // 2]
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Take away what filled it."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk() -> Iterator[SmallDisk]:
    """Mount one, or use the one that is named. Raises NotPossibleHere."""
    with ExitStack() as stack:
        named = os.environ.get(VARIABLE)
        place = Path(tempfile.mkdtemp(prefix="drill-", dir=named)) if named else stack.enter_context(_mounted())
        if shutil.disk_usage(place).total > LARGEST_MB * 1024 * 1024:
            raise NotPossibleHere(
                f"{place} is no small file system", hint=f"name one of at most {LARGEST_MB} MB that may be filled"
            )
        try:
            yield SmallDisk(place)
        finally:
            for child in place.iterdir():
                shutil.rmtree(child) if child.is_dir() else child.unlink()


@contextmanager
def _mounted() -> Iterator[Path]:
    hint = f"run it where file systems may be mounted, or name a small one that may be filled in {VARIABLE}"
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        raise NotPossibleHere("nobody may mount a small disk here", hint=hint)
    place = Path(tempfile.mkdtemp(prefix="outbox-small-disk-"))
    words = [mount, "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0755", "tmpfs", str(place)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        if done.returncode:
            raise NotPossibleHere(f"no small disk can be mounted here: {done.stderr.strip()}", hint=hint)
        try:
            yield place
        finally:
            # Lazily: a backend that is still ending must not keep it mounted for ever.
            subprocess.run([umount, "-l", str(place)], check=False)
    finally:
        place.rmdir()


class SmallServer(Postgres):
    """A server with little WAL. A full disk must not look like a server that was told to keep much."""

    def _options(self) -> Mapping[str, str]:
        return {**super()._options(), **_LITTLE_WAL}

    def log_text(self) -> str:
        """What it has written to its log so far."""
        return (self.directory.parent / "postgres.log").read_text(errors="replace")


@contextmanager
def server_on(disk: SmallDisk, *, wal: bool) -> Iterator[SmallServer]:
    """A server that keeps its WAL on this disk, or else (in the tablespace `small_disk`) what is put there."""
    directory = Path(tempfile.mkdtemp(prefix="outbox-drill-disk-"))
    directory.chmod(0o755)
    guard = Guard(directory)
    server = SmallServer(directory / "postgres", directory / "postgres.log", guard, durable=False)
    try:
        server.start()
        place = disk.directory / ("wal" if wal else "data")
        if wal:
            server.stop()
            kept = server.directory / "data" / "pg_wal"
            shutil.copytree(kept, place)
            shutil.rmtree(kept)
            kept.symlink_to(place)
            _give(place)
            server.start()
        else:
            place.mkdir()
            _give(place)
            with psycopg.connect(server.dsn(), autocommit=True) as owner:
                statement = sql.SQL("create tablespace {} location {}")
                owner.execute(statement.format(sql.Identifier(TABLESPACE), sql.Literal(str(place))))
                owner.execute(sql.SQL("alter database template1 set tablespace {}").format(sql.Identifier(TABLESPACE)))
        yield server
    finally:
        disk.free()
        server.kill() if server.running else None
        guard.close()
        shutil.rmtree(directory, ignore_errors=True)


def _give(place: Path) -> None:
    """To the user that the server runs as."""
    user = unprivileged_user()
    if user is not None:
        for path in (place, *place.rglob("*")):
            shutil.chown(path, user, group_of(user))
    place.chmod(0o700)
