"""What an object mapper really sends, under the agent's role: which of its ways work, and which are refused and how."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.ledger.factories import Stage

ROOT = Path(__file__).resolve().parents[2]


def test_django_stores_repeats_and_reads_by_the_ways_that_are_documented(stage: Stage) -> None:
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": stage.ledger.dsn("agent")}
    command = [sys.executable, str(ROOT / "tests" / "ledger" / "django_agent.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "force_insert": None,
        "again": None,
        "other_intent": "OB001",
        "bulk": None,
        "ignore_conflicts": None,
        "enqueue": None,
        "save": "42501",
        "empty_label": "OB012",
        "with_id": "42501",
        "read_table": "42501",
        "read_key": None,
        "advice": "wait",
    }
    stored = stage.rows("owner", "select idempotency_key as key, payload from outbox.outbound_actions order by 1")
    assert [row["key"] for row in stored] == ["k1", "k2", "k3", "k4"]
    assert {row["payload"]["to"] for row in stored} == {"a@example.com"}


def test_drizzle_stores_repeats_and_reads_by_the_ways_that_are_documented(
    stage: Stage, node: Path, node_packages: Callable[[Path], Path]
) -> None:
    source = ROOT / "tests" / "ledger" / "drizzle_agent"
    # Node looks for packages beside the script.
    agent = shutil.copy(source / "agent.mjs", node_packages(source) / "agent.mjs")
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": stage.ledger.dsn("agent")}
    done = subprocess.run(
        [str(node), str(agent)], env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    columns = '"provider", "account", "operation", "idempotency_key", "payload", "ordering_key", "priority"'
    assert json.loads(done.stdout) == {
        "insert": [],
        "sent": f'insert into "outbox"."outbound_actions" ({columns})'
        " values ($1, default, $2, $3, $4, default, default)",
        "again": [],
        "other_intent": "OB001",
        "many": [],
        "do_nothing": [],
        "do_nothing_on_key": [],
        "returning_key": [{"key": "k4"}],
        "returning_id": [["actionId"]],
        "enqueue": [{"created": True}],
        "returning_all": "42501",
        "do_update": "42501",
        "with_id": "42501",
        "empty_label": "OB012",
        "read_table": "42501",
        "told": ["message"],
        "read_status": [{"idempotencyKey": "k1", "advice": "wait"}],
    }
    stored = stage.rows("owner", "select idempotency_key as key, payload from outbox.outbound_actions order by 1")
    assert [row["key"] for row in stored] == [f"k{number}" for number in range(1, 7)]
    assert {row["payload"]["to"] for row in stored} == {"a@example.com"}
