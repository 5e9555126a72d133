"""Resolutions: what the reconciler may look at, and what it concluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from outbox_relay.ledger.claims import claim_from
from outbox_relay.ledger.outcomes import recorded_in
from outbox_relay.ledger.records import (
    ActionId,
    Claim,
    ClaimToken,
    Evidence,
    Postponement,
    Recorded,
    Resolution,
    ReviewRequest,
    UnknownCase,
)
from outbox_relay.ledger.session import Session, as_json, milliseconds
from outbox_relay.states import DeliveryState, ExecutionState

_INSTANTS = ("now", "first_attempt_at", "last_attempt_at", "in_flight_until", "unknown_since", "deliver_by")


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def evidence_from(item: dict[str, Any]) -> Evidence:
    """Build Evidence from the JSON of outbox.as_evidence."""
    return Evidence(**{**item, "recorded_at": _instant(item["recorded_at"])})


def _case_from(item: dict[str, Any]) -> UnknownCase:
    claim = dict(item["claim"])
    claim["action_id"] = UUID(claim["action_id"])
    claim["claim_token"] = UUID(claim["claim_token"])
    claim["created_at"] = _instant(claim["created_at"])
    claim["first_attempt_at"] = _instant(claim["first_attempt_at"])
    unused = item["unused_acceptance"]
    return UnknownCase(
        **{
            **item,
            **{name: _instant(item[name]) for name in _INSTANTS},
            "claim": claim_from(claim),
            "execution_state": ExecutionState(item["execution_state"]),
            "delivery_state": DeliveryState(item["delivery_state"]),
            "evidence": tuple(evidence_from(entry) for entry in item["evidence"]),
            "unused_acceptance": evidence_from(unused) if unused else None,
        }
    )


def _nested(windows_s: Mapping[tuple[str, str, str], float]) -> Jsonb:
    """Provider, account and operation, one in the other, to milliseconds."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for (provider, account, operation), window_s in windows_s.items():
        found.setdefault(provider, {}).setdefault(account, {})[operation] = milliseconds(window_s)
    return Jsonb(found)


class Resolutions:
    """One method, one round trip."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def claim_unknowns(
        self,
        limit: int,
        *,
        token: ClaimToken,
        lease_s: float,
        deadline_s: float,
        worker: str,
        windows_s: Mapping[tuple[str, str, str], float] | None = None,
    ) -> list[UnknownCase]:
        """Claim what must be looked at: unused acceptances first, then due unknowns, the shortest window first.

        `windows_s`: by provider, account and operation, how long after the first attempt a replay is safe.
        After a LedgerUnavailable the claim may have been committed: ask `recall` with the same token.
        """
        rows = await self._session.rows(
            'select outbox.claim_unknowns(%s, %s, %s, %s, %s, %s) as "case"',
            [limit, token, milliseconds(lease_s), milliseconds(deadline_s), worker, _nested(windows_s or {})],
        )
        return [_case_from(row["case"]) for row in rows]

    async def recall(self, token: ClaimToken) -> list[UnknownCase]:
        """Return what is ours under this token, after waiting for a claim whose COMMIT was lost to end."""
        rows = await self._session.rows('select outbox.recall_unknowns(%s) as "case"', [token])
        return [_case_from(row["case"]) for row in rows]

    async def begin_replay(
        self, action_id: ActionId, token: ClaimToken, *, lease_s: float, deadline_s: float
    ) -> Claim | None:
        """Commit a replay as an attempt before it is sent; None when it must not be sent after all.

        Without the right to store what comes of it nothing begins: LedgerUnavailable.
        """
        rows = await self._session.rows(
            "select begun.* from outbox.begin_replay(%s, %s, %s, %s) as begun"
            " where (select count(*) from outbox.record_resolutions('[]')) = 0",
            [action_id, token, milliseconds(lease_s), milliseconds(deadline_s)],
        )
        return claim_from(rows[0]) if rows else None

    async def resolve(self, resolutions: Sequence[Resolution]) -> list[Recorded]:
        """Store conclusions in one transaction."""
        rows = await self._session.rows("select * from outbox.record_resolutions(%s)", [as_json(resolutions)])
        return recorded_in(rows)

    async def postpone(self, postponements: Sequence[Postponement]) -> list[Recorded]:
        """Give claims back, to be due again later."""
        rows = await self._session.rows("select * from outbox.postpone_unknowns(%s)", [as_json(postponements)])
        return recorded_in(rows)

    async def open_review(self, requests: Sequence[ReviewRequest]) -> list[Recorded]:
        """Put actions before a person and give their claims back."""
        rows = await self._session.rows("select * from outbox.open_reviews(%s)", [as_json(requests)])
        return recorded_in(rows)

    async def probe_write(self) -> None:
        """Raise LedgerUnavailable when a conclusion could not be stored now: read-only, or a right is missing."""
        await self._session.value(
            "select outbox.probe_write()::text, (select count(*) from outbox.record_resolutions('[]')),"
            " (select count(*) from outbox.postpone_unknowns('[]')), (select count(*) from outbox.open_reviews('[]'))"
        )

    async def sweep_deadlines(self, limit: int = 500) -> int:
        """Expire what was not sent before its deadline; return how many."""
        return int(await self._session.value("select outbox.sweep_deadlines(%s)", [limit]))

    async def roll_up_counters(self) -> int:
        """Fold counter deltas into totals; return how many."""
        return int(await self._session.value("select outbox.roll_up_counters()"))

    async def next_due_in(self) -> float | None:
        """Return the seconds until something must be looked at, 0 when it is due, None when nothing is open."""
        found = await self._session.value("select outbox.next_unknown_in()")
        return None if found is None else float(found)
