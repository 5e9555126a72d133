"""PgBouncer in transaction mode in front of this session's PostgreSQL, as many teams run it.

From the system, else unpacked from the distribution's own packages under build/tools, which needs no root and installs
nothing. On a machine with neither the tests are skipped, by name, in allowed-skips.txt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from outbox_relay.local.ports import free_port
from outbox_relay.local.postgres import unprivileged_user
from tests.plugins.independent import served
from tests.plugins.postgres import ROLES, PostgresServer, TrialDatabase, role_name

TOOLS = Path(__file__).resolve().parents[2] / "build" / "tools" / "pgbouncer"
LIBRARIES = ("libc-ares", "libcares", "libevent-2")
DOCUMENTED = "extra_float_digits, options"
"""What docs/operating.md asks of a pooler: to let pass what it cannot keep per client."""


def pgbouncer() -> Path | None:
    """Find the program on the system, else unpack it; None where there is neither."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found:
        return Path(found)
    program = TOOLS / "usr" / "sbin" / "pgbouncer"
    return program if program.exists() or _unpacked(program) else None


def _unpacked(program: Path) -> bool:
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return False
    TOOLS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS.parent) as folder:
        said = subprocess.run(["apt-cache", "depends", "pgbouncer"], capture_output=True, text=True, check=False).stdout
        needed = [name for name in said.split() if name.startswith(LIBRARIES)]
        command = ["apt-get", "download", "-q", "pgbouncer", *needed]
        if subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False).returncode:
            return False
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(Path(folder) / "files")], check=True, timeout=60)
        shutil.rmtree(TOOLS, ignore_errors=True)
        (Path(folder) / "files").rename(TOOLS)
    return program.exists()


@dataclass(frozen=True, slots=True)
class PooledLedger:
    """A ledger whose agents, relay and reconciler come through the pooler; the owner comes directly."""

    database: TrialDatabase
    port: int

    def dsn(self, role: str) -> str:
        """A libpq URL."""
        if role == "owner":
            return self.database.dsn()
        return f"postgresql://{role_name(role)}@127.0.0.1:{self.port}/{self.database.name}"


@contextmanager
def pooler(server: PostgresServer, *, ignored: str = DOCUMENTED, pool_size: int = 3) -> Iterator[int]:
    """Run PgBouncer until the block ends; its port. `ignored` is its ignore_startup_parameters."""
    program = pgbouncer()
    if program is None:
        pytest.skip("no pgbouncer on this machine, and no apt to unpack it with")
    place = conninfo_to_dict(server.dsn())
    port = free_port()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        users = [role_name(role) for role in (*ROLES, "owner")]
        (folder / "users.txt").write_text("".join(f'"{user}" ""\n' for user in users), encoding="utf-8")
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={place['host']} port={place['port']}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder}/users.txt\npool_mode = transaction\n"
            f"default_pool_size = {pool_size}\nignore_startup_parameters = {ignored}\n",
            encoding="utf-8",
        )
        user = unprivileged_user()
        command = [str(program), *(["-u", user] if user else []), str(folder / "pgbouncer.ini")]
        libraries = ":".join(map(str, TOOLS.glob("usr/lib/*")))
        command = ["env", f"LD_LIBRARY_PATH={libraries}", *command] if TOOLS in program.parents else command
        stack.enter_context(served(command, [port], folder / "log"))
        yield port


@pytest.fixture
def pooled(ledger: TrialDatabase) -> Iterator[PooledLedger]:
    """This test's ledger behind PgBouncer, with the settings that are documented."""
    with pooler(ledger.server) as port:
        yield PooledLedger(ledger, port)
