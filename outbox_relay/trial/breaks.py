"""Ways in which a ledger stops to take outcomes: rights revoked, read-only, connections cut. Each heals when left.

Played by the ledger's owner, in this one database only. Agents are never kept out: they go on to insert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_relay.trial.scenario import LedgerPlace, Scenario

WORKERS = ("relay", "reconciler")
WRITES: Mapping[str, Sequence[LiteralString]] = {
    "relay": ("record_outcomes(jsonb)",),
    "reconciler": ("record_resolutions(jsonb)", "postpone_unknowns(jsonb)", "open_reviews(jsonb)"),
}
"""The functions that take outcomes. Claims stay possible: the worst case, for a claim that works invites to send."""

Break = Callable[[Scenario], AbstractContextManager[None]]


@contextmanager
def rights_revoked(scenario: Scenario) -> Iterator[None]:
    """The workers may claim, and may not write down what came of it."""
    for role in WORKERS:
        for function in WRITES[role]:
            _execute(scenario.ledger, sql.SQL(f"revoke execute on function outbox.{function} from {{role}}"), role)
    try:
        yield
    finally:
        for role in WORKERS:
            for function in WRITES[role]:
                _execute(scenario.ledger, sql.SQL(f"grant execute on function outbox.{function} to {{role}}"), role)


@contextmanager
def read_only(scenario: Scenario) -> Iterator[None]:
    """As on a standby, or a database whose disk is full: everything can be read, nothing can be written."""
    setting = "role {role} in database {database}"
    for role in WORKERS:
        _execute(scenario.ledger, sql.SQL(f"alter {setting} set default_transaction_read_only = on"), role)
        scenario.end_sessions(role)
    try:
        yield
    finally:
        for role in WORKERS:
            _execute(scenario.ledger, sql.SQL(f"alter {setting} reset default_transaction_read_only"), role)
            scenario.end_sessions(role)


@contextmanager
def cut_off(scenario: Scenario) -> Iterator[None]:
    """Every connection of the workers ends, and no new one is let in."""
    _execute(scenario.ledger, sql.SQL("revoke connect on database {database} from public"), "relay")
    _execute(scenario.ledger, sql.SQL("grant connect on database {database} to {role}"), "agent")
    for role in WORKERS:
        scenario.end_sessions(role)
    try:
        yield
    finally:
        _execute(scenario.ledger, sql.SQL("grant connect on database {database} to public"), "relay")


def _execute(ledger: LedgerPlace, statement: sql.SQL, role: str) -> None:
    user = psycopg.conninfo.conninfo_to_dict(ledger.dsn(role))["user"]
    with psycopg.connect(ledger.dsn("owner"), autocommit=True) as owner:
        names = {"role": sql.Identifier(str(user)), "database": sql.Identifier(owner.info.dbname)}
        owner.execute(statement.format(**names))
