"""The local stack keeps its word: right files only, nothing left running, clear errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from outbox_relay.errors import DependencyDown, SettingsError
from outbox_relay.local import jars as local_jars
from outbox_relay.local.java import Java, find_java
from outbox_relay.local.postgres import BINDIR_VARIABLE
from outbox_relay.local.stack import Stack
from outbox_relay.resources import resource

ROOT = Path(__file__).resolve().parents[2]


def test_the_lock_holds_one_version_of_everything_and_no_address() -> None:
    jars = local_jars.locked_jars()
    names = [(jar.group, jar.artifact) for jar in jars]
    assert len(names) == len(set(names)) > 100
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.size > 0 for jar in jars)
    assert "://" not in resource("connectors", "jars.lock").read_text(encoding="utf-8")


def test_kafka_and_connect_are_locked_at_one_version() -> None:
    versions = {jar.version for jar in local_jars.locked_jars() if jar.group == "org.apache.kafka"}
    assert len(versions) == 1


def test_a_jar_with_another_checksum_never_gets_onto_the_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = local_jars.locked_jars()[0]
    wrong = local_jars.Jar(right.group, right.artifact, right.version, right.size, "0" * 64)
    repository = tmp_path / "repository"
    (repository / wrong.path).parent.mkdir(parents=True)
    (repository / wrong.path).write_bytes(b"x" * right.size)
    monkeypatch.setenv("M2_REPO", str(repository))
    monkeypatch.setenv("OUTBOX_LOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(local_jars, "locked_jars", lambda: [wrong])
    monkeypatch.setattr(local_jars, "_download", lambda jar, target: (target / jar.path).write_bytes(b"y" * jar.size))
    with pytest.raises(DependencyDown, match="is not the file"):
        local_jars.class_path(lambda _: None)
    assert not (tmp_path / "cache" / "jars" / wrong.path).exists()


def test_a_directory_without_postgresql_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BINDIR_VARIABLE, str(tmp_path))
    with Stack(tmp_path) as stack, pytest.raises(SettingsError, match=BINDIR_VARIABLE):
        stack.start_postgres()


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\n', encoding="utf-8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().home != tmp_path
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.2"\n', encoding="utf-8")
    assert find_java() == Java(tmp_path, 21)


def up(build: Path) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """Start PostgreSQL through the command, and wait until it has said where."""
    command = [sys.executable, "-m", "outbox_relay.local", "up", "--postgres-only", "--fast", "--build", str(build)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def server_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The PostgreSQL server that this command started."""
    (server,) = [child for child in psutil.Process(process.pid).children() if child.name() == "postgres"]
    return server


@pytest.mark.postgres
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_servers_end_with_their_owner_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    process, addresses = up(tmp_path)
    server, directory = server_of(process), Path(addresses["directory"])
    os.kill(process.pid, how)
    process.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while server.is_running() or directory.exists():
        assert time.monotonic() < deadline, "the server or its data outlived its owner"
        time.sleep(0.05)
    if how != signal.SIGKILL:
        assert process.returncode == 0


@pytest.mark.postgres
def test_a_killed_postgresql_starts_again_with_its_data_and_port(tmp_path: Path) -> None:
    import psycopg

    with Stack(tmp_path, durable=False) as stack:
        stack.start_postgres()
        address = stack.addresses().postgres
        with psycopg.connect(address) as connection:
            connection.execute("create table kept as select 1 as one")
        stack.postgres.kill()
        stack.start_postgres()
        assert stack.addresses().postgres == address
        with psycopg.connect(address) as connection:
            assert connection.execute("select one from kept").fetchone() == (1,)


def test_everything_is_started_in_few_seconds_or_the_reason_is_in_the_log(tmp_path: Path) -> None:
    """A server that cannot start says why, instead of a bare timeout."""
    with Stack(tmp_path, durable=False) as stack:
        stack.postgres.directory.mkdir(parents=True)
        (stack.postgres.directory / "data").mkdir()
        (stack.postgres.directory / "data" / "PG_VERSION").write_text("9.6\n", encoding="utf-8")
        began = time.monotonic()
        with pytest.raises(DependencyDown, match="ended while starting") as raised:
            stack.start_postgres()
        assert time.monotonic() - began < 20
        assert str(stack.logs) in (raised.value.hint or "")
