"""What an object mapper really sends, under the agent's role: which of its ways work, and which are refused and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
