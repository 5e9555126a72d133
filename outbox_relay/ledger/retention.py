"""Retention: what is removed of actions that settled long ago. Keys and fingerprints stay for ever.

The functions decide what is old enough and exempt what is open; a caller only says how many days, and goes on where the
last call stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from outbox_relay.ledger.session import Session


@dataclass(frozen=True, slots=True)
class Pass:
    """One bounded call: how many actions it changed, and where the next one goes on (None at the end)."""

    changed: int
    looked_until: datetime | None


class Retention:
    """One method, one round trip."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def redact(self, days: int, *, after: datetime | None = None, limit: int = 500) -> Pass:
        """Remove payload and recipient of actions that settled `days` ago; looks at `limit` actions from `after` on."""
        rows = await self._session.rows("select * from outbox.redact_settled(%s, %s, %s)", [days, after, limit])
        return Pass(rows[0]["redacted"], rows[0]["looked_until"])

    async def delete_history(
        self, days: int, *, redacted_days: int, after: datetime | None = None, limit: int = 500
    ) -> Pass:
        """Delete events and evidence `days` after the last change and `redacted_days` after redaction."""
        rows = await self._session.rows(
            "select * from outbox.delete_history(%s, %s, %s, %s)", [days, redacted_days, after, limit]
        )
        return Pass(rows[0]["deleted"], rows[0]["looked_until"])
