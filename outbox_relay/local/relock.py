"""Writes connectors/jars.lock from what Maven makes of connectors/pom.xml. For maintainers; needs mvn.

The servers of connectors/servers.lock keep their versions, and get their sizes and hashes anew.
Maven resolves because it is the authority for these artifacts; a jar from any other place would be refused by its
checksum when the local stack fetches it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from outbox_relay.errors import DependencyDown, OutboxError
from outbox_relay.local.jars import locked_jars
from outbox_relay.resources import resource

_HEADER = """\
# Every jar of the local Kafka broker, Kafka Connect and Debezium, as Maven resolves connectors/pom.xml.
# group:artifact:version, size in bytes, sha256. Made by `make lock-jars`; do not edit by hand.
"""


def main() -> int:
    """Resolve, hash and write; 0 when the lock was written."""
    pom = resource("connectors", "pom.xml")
    try:
        with tempfile.TemporaryDirectory() as directory:
            _resolve(pom, Path(directory))
            lines = [_line(jar, Path(directory)) for jar in sorted(Path(directory).rglob("*.jar"))]
        servers = _servers()
    except OutboxError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    pom.with_name("jars.lock").write_text(_HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    pom.with_name("servers.lock").write_text(servers, encoding="utf-8")
    print(f"{len(lines)} jars locked, and the servers")
    return 0


def _resolve(pom: Path, target: Path) -> None:
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    _mvn("connectors/pom.xml", "-f", str(pom), *copy)


def _servers() -> str:
    """The lock of the servers: their versions as they are written there, size and hash as Maven has them."""
    comments = [line for line in resource("connectors", "servers.lock").read_text().splitlines() if line[:1] == "#"]
    with tempfile.TemporaryDirectory() as directory:
        for jar in locked_jars("servers.lock"):
            coordinate = f"{jar.group}:{jar.artifact}:{jar.version}"
            _mvn(coordinate, "dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={directory}")
        lines = [_line(jar, Path(directory)) for jar in sorted(Path(directory).rglob("*.jar"))]
    return "\n".join([*comments, *lines]) + "\n"


def _mvn(what: str, *arguments: str) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise DependencyDown("mvn was not found", hint="install Maven; only those who change jar versions need it")
    command = [mvn, "-q", "-B", *arguments, "-Dmdep.useRepositoryLayout=true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DependencyDown(f"Maven could not resolve {what}", hint=done.stdout[-2000:])


def _line(jar: Path, root: Path) -> str:
    *group, artifact, version, name = jar.relative_to(root).parts
    if name != f"{artifact}-{version}.jar":
        raise DependencyDown(f"{name} has a classifier, which the lock cannot express", hint="extend jars.py first")
    content = jar.read_bytes()
    return f"{'.'.join(group)}:{artifact}:{version} {len(content)} {hashlib.sha256(content).hexdigest()}"


if __name__ == "__main__":
    sys.exit(main())
