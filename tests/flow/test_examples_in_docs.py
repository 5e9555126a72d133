"""Every SQL block of docs/agents.md does what the page says, under the agent's role."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

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
