"""The four example agents, run as they are, under the agent's role alone. What they print is what the docs promise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import iter_errors

from outbox_relay.providers.registry import load_contracts
from tests.flow.example_programs import ROOT, agent_program
from tests.flow.resend_account import declare_resend

pytestmark = pytest.mark.timeout(300)  # the first run installs drivers and compiles
LANGUAGES = ["psycopg", "sqlalchemy", "node-postgres", "jdbc"]
STEPS = ["committed", "rolled_back", "repeated", "inserted_again", "refused", "raced", "status"]
Agent = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture
def shop(ledger: Any) -> Any:
    """A ledger that knows the operation the examples use, in a database that has their business table."""
    with ledger.connect("owner") as owner:
        owner.execute((ROOT / "examples" / "shop.sql").read_bytes())
        declare_resend(owner)
    return ledger


@pytest.fixture(params=LANGUAGES)
def agent(request: pytest.FixtureRequest, shop: Any) -> Agent:
    """Run one of the programs to its end and give what it printed, by step."""
    command = agent_program(request.param)

    def run(order: str) -> dict[str, dict[str, Any]]:
        environ = {"PATH": os.environ["PATH"], "DATABASE_URL": shop.dsn("agent")}
        done = subprocess.run([*command, order], env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {line.pop("step"): line for line in lines}

    return run


def stored(shop: Any, query: str) -> list[tuple[Any, ...]]:
    with shop.connect("owner") as owner:
        rows: list[tuple[Any, ...]] = owner.execute(query).fetchall()
    return rows


def test_agent_commits_repeats_is_refused_and_reads_advice(agent: Agent) -> None:
    told = agent("order-1")
    assert [step for step in told if step in STEPS] == STEPS
    action = told["committed"]["action_id"]
    assert told["rolled_back"] == {"actions": 0}
    assert told["repeated"] == {"action_id": action}
    assert told["inserted_again"] == {"rows": 0}
    assert told["raced"]["attempts"] == 2, "the first try must lose, or the retry was never exercised"
    assert told["status"]["advice"] == "wait"
    assert told["status"]["check_again_at"]
    detail = json.loads(told["refused"]["detail"])
    assert (told["refused"]["sqlstate"], detail["action_id"], detail["differs"]) == ("OB001", action, "payload")


def test_agent_leaves_exactly_what_it_committed(agent: Agent, shop: Any) -> None:
    told = agent("order-1")
    actions = stored(shop, "select idempotency_key, action_id::text from outbox.outbound_actions order by 1")
    assert actions == [
        ("shop:order:order-1:confirm:1", told["committed"]["action_id"]),
        ("shop:order:order-1:invoice:1", told["raced"]["action_id"]),
    ]
    # The refusal was contained by the savepoint: what the transaction did around it was committed.
    assert stored(shop, "select order_id, status from shop.orders") == [("order-1", "already asked")]


def test_agent_that_starts_again_finds_its_actions_and_reads_what_became_of_them(agent: Agent, shop: Any) -> None:
    first = agent("order-1")
    with shop.connect("agent") as tester:
        tester.execute("select outbox_testing.settle('shop:order:order-1:confirm:1', 'unknown')")
    second = agent("order-1")
    assert second["committed"] == first["committed"]
    assert second["raced"]["action_id"] == first["raced"]["action_id"]
    assert second["status"]["advice"] == "unknown_do_not_resend"
    assert stored(shop, "select count(*) from outbox.outbound_actions") == [(2,)]


def test_what_the_agents_ask_for_fits_the_contract_of_the_provider(agent: Agent, shop: Any) -> None:
    agent("order-1")
    operation = load_contracts(None)["resend"].operations["emails.send"]
    payloads = stored(shop, "select payload from outbox.outbound_actions")
    assert [complaint for (payload,) in payloads for complaint in iter_errors(operation.payload_schema, payload)] == []


def test_jdbc_text_without_a_cast_is_refused_as_documented(shop: Any) -> None:
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": shop.dsn("agent")}
    done = subprocess.run(agent_program("jdbc"), env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert '{"step": "without_cast", "sqlstate": "42804"}' in done.stdout


def test_examples_need_only_their_own_folder(tmp_path: Path, shop: Any) -> None:
    """An agent's author copies one file and installs one driver."""
    shutil.copy(ROOT / "examples" / "psycopg" / "agent.py", tmp_path)
    environ = {"PATH": os.environ["PATH"], "DATABASE_URL": shop.dsn("agent")}
    command = [sys.executable, "-I", "agent.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
