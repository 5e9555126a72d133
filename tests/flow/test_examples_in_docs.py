"""docs/agents.md does what it says, under the agent's role: every SQL block, every refusal, every outcome."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.flow.resend_account import declare_resend

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATEMENT = re.compile(r"(.+?);\n(?:-- (gives|fails) ([^\n]+)\n)?", re.DOTALL)


def statements(page: str) -> list[tuple[str, str, str]]:
    """Give (statement, gives or fails or nothing, what) in order."""
    text = "\n".join(BLOCK.findall(page))
    return [(found[0].strip(), found[1], found[2]) for found in STATEMENT.findall(text)]


def outcome(agent: psycopg.Connection[Any], statement: str) -> tuple[str, str]:
    """Run one statement and say what it gives, or with which SQLSTATE it fails."""
    try:
        cursor = agent.execute(statement.encode())
    except psycopg.DatabaseError as error:
        return "fails", error.sqlstate or str(error)
    row = cursor.fetchone() if cursor.description else None
    values = row or ("nothing",)
    return "gives", " | ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def test_every_statement_of_the_page_for_agents_does_what_it_says(ledger: Any) -> None:
    owner = ledger.connect("owner")
    owner.execute((ROOT / "examples" / "shop.sql").read_bytes())
    declare_resend(owner)
    agent = ledger.connect("agent")
    found = statements((ROOT / "docs" / "agents.md").read_text())
    assert len(found) > 15
    for statement, expectation, what in found:
        kind, given = outcome(agent, statement)
        assert kind == (expectation or "gives"), f"{given}: {statement}"
        assert not expectation or given == what, statement
    assert owner.execute("select status from shop.orders").fetchall() == [("already asked",)]


INSERT = """
    insert into outbox.outbound_actions (provider, operation, idempotency_key, payload{more})
    values (%s, %s, %s, %s{marks})
"""
GOOD = (
    "resend",
    "emails.send",
    "shop:order:1:confirm:1",
    '{"from": "a@example.com", "to": "b@example.com", "subject": "x"}',
)
REFUSALS = {
    "OB003 provider": ("nobody", *GOOD[1:]),
    "OB003 operation": ("resend", "emails.unsend", *GOOD[2:]),
    "OB004 empty": (*GOOD[:2], "", GOOD[3]),
    "OB004 space": (*GOOD[:2], "a b", GOOD[3]),
    "OB004 long": (*GOOD[:2], "k" * 256, GOOD[3]),
    "OB005 array": (*GOOD[:3], "[]"),
    "OB005 large": (*GOOD[:3], json.dumps({"text": "x" * 1_100_000})),
}


@pytest.fixture
def agent(ledger: Any) -> Any:
    declare_resend(ledger.connect("owner"))
    return ledger.connect("agent")


def insert(agent: psycopg.Connection[Any], values: tuple[object, ...], more: str = "") -> None:
    statement = INSERT.format(more=f", {more}" if more else "", marks=", %s" if more else "")
    agent.execute(statement.encode(), values)


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_sent_is_refused_in_the_agents_own_transaction(agent: Any, case: str) -> None:
    with pytest.raises(psycopg.DatabaseError) as refused:
        insert(agent, REFUSALS[case])
    assert refused.value.sqlstate == case.split(maxsplit=1)[0]
    assert refused.value.diag.message_hint, "a refusal says what to do"


@pytest.mark.parametrize(
    ("column", "value", "sqlstate"),
    [
        ("recipient", "somebody-else@example.com", "OB006"),
        ("deliver_by", "2020-01-01", "OB007"),
        ("execution_state", "cancelled", "42501"),
        ("provider_id", "made-up", "42501"),
        ("created_by", "somebody", "42501"),
    ],
)
def test_columns_with_wrong_values_or_not_the_agents_are_refused(
    agent: Any, column: str, value: str, sqlstate: str
) -> None:
    with pytest.raises(psycopg.DatabaseError) as refused:
        insert(agent, (*GOOD, value), more=column)
    assert refused.value.sqlstate == sqlstate
    assert "somebody-else" not in str(refused.value)


def test_the_page_names_every_sqlstate_that_an_agent_can_meet() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    for sqlstate in ("OB001", "OB002", "OB003", "OB004", "OB005", "OB006", "OB007", "OB009", "40001", "42501", "42804"):
        assert f"| {sqlstate} |" in page


ADVICE = {
    "accepted": "accepted",
    "refused": "refused",
    "unknown": "unknown_do_not_resend",
    "unknown_then_confirmed": "accepted",
    "unknown_then_failed": "not_sent",
    "on_hold": "in_review",
    "cancelled": "not_sent",
    "expired": "not_sent",
}


@pytest.mark.parametrize("wanted", ADVICE)
def test_a_test_can_settle_an_action_in_every_way_the_page_names(agent: Any, wanted: str) -> None:
    assert f"`{wanted}`" in (ROOT / "docs" / "agents.md").read_text()
    insert(agent, GOOD)
    agent.execute("select outbox_testing.settle(%s, %s)", (GOOD[2], wanted))
    row = agent.execute("select advice, check_again_at is null from outbox.action_status").fetchone()
    settled = wanted not in {"unknown", "on_hold"}
    assert row == (ADVICE[wanted], settled)


@pytest.mark.parametrize("commits", [True, False])
def test_a_concurrent_twin_waits_and_then_finds_the_action_or_makes_it(ledger: Any, agent: Any, commits: bool) -> None:
    enqueue = "select action_id, created from outbox.enqueue(%s, %s, %s, %s)"
    twin = ledger.connect("agent")
    waiting = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    owner = ledger.connect("owner")
    with ThreadPoolExecutor(1) as pool:
        agent.execute("begin")
        first = agent.execute(enqueue, GOOD).fetchone()
        second = pool.submit(lambda: twin.execute(enqueue, GOOD).fetchone())
        deadline = time.monotonic() + 20
        while owner.execute(waiting, (twin.info.backend_pid,)).fetchone() is None:
            assert time.monotonic() < deadline, "the twin does not wait"
        agent.execute("commit" if commits else "rollback")
        found = second.result(timeout=20)
    assert found is not None
    assert first is not None
    assert (found[0] == first[0], found[1]) == (commits, not commits)


def test_copy_takes_many_actions_and_skips_the_known(agent: Any) -> None:
    columns = "provider, operation, idempotency_key, payload"
    with agent.cursor() as cursor:
        with cursor.copy(f"copy outbox.outbound_actions ({columns}) from stdin") as copy:
            for number in (1, 2, 1):
                copy.write_row((*GOOD[:2], f"copied:{number}", GOOD[3]))
        cursor.execute("select idempotency_key, advice from outbox.action_status order by 1")
        assert cursor.fetchall() == [("copied:1", "wait"), ("copied:2", "wait")]
