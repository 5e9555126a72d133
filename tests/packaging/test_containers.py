"""Image and compose file fit the product: same versions, known settings, real commands, nothing writable needed."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pglast
import pytest
import yaml
from typer.testing import CliRunner

from outbox_relay.cli import app
from outbox_relay.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("outbox-relay")}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def jar_version(artifact: str) -> str:
    found = re.search(rf"\b{artifact}[ \t:]+(\S+?)[ \t:]", (ROOT / "connectors" / "jars.lock").read_text())
    assert found, artifact
    return found[1]


def test_compose_runs_the_versions_that_the_tests_run() -> None:
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{jar_version('kafka_2.13')}"
    assert SERVICES["connect"]["image"].endswith(f"/debezium/connect:{jar_version('debezium-connector-postgres')}")


def test_every_setting_in_compose_exists() -> None:
    passwords = {f"OUTBOX_PASSWORD_{part}" for part in ("AGENT", "RELAY", "RECONCILER", "OPERATOR", "CAPTURE")}
    known = {f"OUTBOX_{field.upper()}" for field in Settings.model_fields} | passwords
    for service in OURS.values():
        assert {name for name in service.get("environment", {}) if name.startswith("OUTBOX_")} <= known


@pytest.mark.parametrize("name", [name for name in OURS if OURS[name]["command"][0] == "outbox"])
def test_every_command_in_compose_exists(name: str) -> None:
    result = CliRunner().invoke(app, [*OURS[name]["command"][1:], "--help"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_a_read_only_root_and_no_rights(name: str) -> None:
    assert OURS[name]["read_only"] is True
    assert OURS[name]["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in OURS[name]["security_opt"]


def test_programs_have_time_to_end_what_is_in_flight() -> None:
    lease_s = Settings.model_fields["lease_s"].default
    for name in ("relay", "reconciler"):
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > lease_s


def test_nothing_is_published_beyond_this_machine() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_image_runs_as_a_numbered_user_that_is_not_root() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users
    assert all(int(part) > 0 for part in users[-1].split(":"))


def test_the_image_installs_only_what_is_locked() -> None:
    installs = re.findall(r"pip install ([^\\\n]*)", DOCKERFILE)
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


def test_everything_the_image_copies_reaches_the_build() -> None:
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert sources == admitted
    assert not [source for source in sources if not (ROOT / source).exists()]


def test_the_probe_of_the_image_is_valid_python() -> None:
    (code,) = re.findall(r'HEALTHCHECK.*?"-c", "(.*?)"\]', DOCKERFILE, re.DOTALL)
    subprocess.run([sys.executable, "-c", f"compile({code!r}, 'probe', 'exec')"], check=True)


def test_the_demo_agents_sql_is_sql() -> None:
    text = COMPOSE["configs"]["agent"]["content"].replace("$$", "$")
    kinds = [type(statement.stmt).__name__ for statement in pglast.parse_sql(text)]
    assert kinds == ["InsertStmt", "DoStmt", "SelectStmt"]
