"""Audit: whether the ledger adds up, and its history leads to where it stands.

The checks are SQL functions; this walks them in bounded steps, so that a ledger of any size streams by. It changes
nothing, and what it reports names actions, never a payload, a recipient or a key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, LiteralString

from outbox_relay.ledger.session import Session


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing that does not hold: of which kind, about what, and how it differs."""

    finding: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class AuditStep:
    """One bounded step: how many rows it looked at, of which kind, and what does not hold."""

    part: str
    looked: int
    findings: tuple[AuditFinding, ...]


class Audit:
    """Streams the steps of an audit."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def totals(self) -> AuditStep:
        """Compare created with the sum of all states, in one snapshot."""
        rows = await self._session.rows("select finding, subject, detail from outbox.audit_totals()")
        return AuditStep("totals", len(rows), tuple(AuditFinding(**row) for row in rows))

    async def actions(self, batch: int = 1000) -> AsyncIterator[AuditStep]:
        """Replay every action's retained events and compare its row with what stands beside it."""
        async for step in self._walk("actions", "select * from outbox.audit_actions(%s, %s)", batch):
            yield step

    async def keys(self, batch: int = 10_000) -> AsyncIterator[AuditStep]:
        """Look for keys whose action is gone."""
        async for step in self._walk("keys", "select * from outbox.audit_keys(%s, %s)", batch):
            yield step

    async def _walk(self, part: str, statement: LiteralString, batch: int) -> AsyncIterator[AuditStep]:
        after: Any = None
        while True:  # ends: every step goes on behind the last one, and the last step has no successor
            row = (await self._session.rows(statement, [after, batch]))[0]
            yield AuditStep(part, row["looked"], tuple(AuditFinding(**item) for item in row["findings"]))
            after = row["last"]
            if after is None:
                return
