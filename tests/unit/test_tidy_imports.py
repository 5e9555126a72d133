"""The import contracts hold, and each of them breaks when somebody crosses the line it draws."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = str(Path(sys.executable).parent / "lint-imports")


def verdicts(folder: Path) -> dict[str, bool]:
    """Run the contracts on a copy; which of them are kept."""
    command = [TOOL, "--no-cache", "--no-logo", "--config", "pyproject.toml"]
    done = subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(folder), "COLUMNS": "300"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    lines = [line.strip() for line in done.stdout.splitlines()]
    found = {line.rpartition(" ")[0]: line.endswith(" KEPT") for line in lines if line.endswith((" KEPT", " BROKEN"))}
    assert found, done.stdout + done.stderr
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The two packages and the contracts, where a line can be added."""
    for package in ("outbox_relay", "reconciler"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(root: Path, module: str, line: str) -> None:
    path = root / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = root / module.replace(".", "/") / "__init__.py"
    with path.open("a") as file:
        file.write(f"\n{line}\n")


def test_every_import_goes_the_right_way(copy: Path) -> None:
    assert [name for name, kept in verdicts(copy).items() if not kept] == []


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("outbox_relay.ledger.records", "import outbox_relay.cli", "Layers of outbox_relay"),
        ("outbox_relay.providers.contract", "import outbox_relay.attempt.send", "Layers of outbox_relay"),
        ("outbox_relay.dispatch.limits", "import outbox_relay.dispatch.loop", "Layers of the relay"),
        ("reconciler.decide", "import reconciler.loop", "Layers of the reconciler"),
        ("reconciler.loop", "import outbox_relay.dispatch.limits", "The relay and the reconciler"),
        ("outbox_relay.local.stack", "import reconciler.decide", "The product never imports"),
        ("reconciler.loop", "import psycopg", "Only the ledger speaks SQL"),
        ("outbox_relay.dispatch.loop", "import confluent_kafka", "Only capture speaks Kafka"),
        ("outbox_relay.capture.topic", "import kafka", "Only the demo plays"),
        ("outbox_relay.dispatch.loop", "import outbox_relay.settings", "Settings reach the code"),
        ("reconciler.loop", "import httptools", "Only one file talks to providers"),
        ("reconciler.loop", "import outbox_relay.providers.wire", "Only one file talks to providers"),
        ("reconciler.loop", "import aiohttp", "Only telemetry and trial serve HTTP"),
        ("outbox_relay.attempt.classify", "import asyncio", "Decisions are pure"),
        ("outbox_relay.states", "import psycopg", "Decisions are pure"),
    ],
)
def test_crossing_a_line_breaks_its_contract(copy: Path, module: str, line: str, contract: str) -> None:
    plant(copy, module, line)
    broken = [name for name, kept in verdicts(copy).items() if not kept]
    assert [name for name in broken if name.startswith(contract)], broken


def test_a_new_module_must_be_placed(copy: Path) -> None:
    (copy / "outbox_relay" / "novelty.py").touch()
    assert verdicts(copy)["Layers of outbox_relay"] is False
