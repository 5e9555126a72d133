"""The local stack keeps its word: right files only, nothing left running, clear errors."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from outbox_relay.errors import DependencyDown, SettingsError
from outbox_relay.local import jars as local_jars
from outbox_relay.local import servers
from outbox_relay.local.java import Java, find_java
from outbox_relay.local.servers import BINDIR_VARIABLE, MAJOR_VARIABLE, chosen_major, locked_servers, server_bindir
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


def test_the_pinned_servers_are_the_supported_majors_that_the_wheel_is_not() -> None:
    assert sorted(locked_servers()) == [14, 15, 16, 17]
    assert "://" not in resource("connectors", "servers.lock").read_text(encoding="utf-8")


@pytest.mark.parametrize("major", ["13", "19", "17.2", "x"])
def test_a_major_that_is_not_pinned_is_refused_with_the_choice(major: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAJOR_VARIABLE, major)
    with pytest.raises(SettingsError, match="14, 15, 16, 17, 18"):
        chosen_major()


def test_a_major_is_chosen_by_its_number_and_the_wheels_is_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for given in ("14", "17", "18", ""):
        monkeypatch.setenv(MAJOR_VARIABLE, given)
        found.append(chosen_major())
    assert found == [14, 17, None, None]


def server_archive(path: Path) -> None:
    """A jar that holds a server as small as can be, and what only builders want."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as files:
        for name in ("bin/postgres", "lib/libpq.a", "include/libpq-fe.h"):
            member = tarfile.TarInfo(name)
            member.size, member.mode = 1, 0o755
            files.addfile(member, io.BytesIO(b"x"))
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("postgres-linux.txz", packed.getvalue())


def test_a_pinned_server_is_fetched_once_unpacked_once_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_archive(tmp_path / "made.jar")
    content = (tmp_path / "made.jar").read_bytes()
    jar = local_jars.Jar("g", "server", "14.1.0", len(content), hashlib.sha256(content).hexdigest())
    fetches: list[str] = []

    def download(wanted: local_jars.Jar, repository: Path) -> None:
        fetches.append(wanted.version)
        (repository / wanted.path).write_bytes(content)

    monkeypatch.setenv("M2_REPO", str(tmp_path / "none"))
    monkeypatch.setenv("OUTBOX_LOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(local_jars, "_download", download)
    monkeypatch.setattr(servers, "locked_servers", lambda: {14: jar})
    monkeypatch.setattr(servers, "can_run", lambda: True)
    told: list[str] = []
    bindir = server_bindir(14, told.append)
    assert os.access(bindir / "postgres", os.X_OK)
    assert {path.name for path in bindir.parent.iterdir()} == {"bin"}
    assert any("downloading PostgreSQL 14.1.0" in line for line in told)
    assert server_bindir(14, told.append) == bindir
    assert fetches == ["14.1.0"]


def test_where_no_pinned_server_runs_ones_own_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "can_run", lambda: False)
    with pytest.raises(DependencyDown) as refused:
        server_bindir(14, lambda _: None)
    assert BINDIR_VARIABLE in (refused.value.hint or "")


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
