"""Reports: what the ledger holds, for lists, waits, metrics and the doctor. Never a payload or a recipient."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox_relay.errors import NotFound
from outbox_relay.ledger.records import ActionId, ActionSummary, Evidence
from outbox_relay.ledger.resolutions import evidence_from
from outbox_relay.ledger.session import Session
from outbox_relay.states import DeliveryState, ExecutionState, ReceiptState


@dataclass(frozen=True, slots=True)
class CreatedCount:
    """How many actions agents created for one account, from the counter deltas."""

    provider: str
    account: str
    total: int


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many actions of one account are in one state, from the ledger."""

    provider: str
    account: str
    execution_state: str
    delivery_state: str
    receipt_state: str
    resolution: str | None
    total: int
    duplicates_suspected: int


@dataclass(frozen=True, slots=True)
class ReviewCount:
    """How many open reviews one owner has for one account."""

    provider: str
    account: str
    owner: str
    total: int
    oldest_age_s: float


@dataclass(frozen=True, slots=True)
class Counters:
    """Created and the states, read in one snapshot: created is the sum of the states."""

    created: tuple[CreatedCount, ...]
    states: tuple[StateCount, ...]
    awaiting_review: tuple[ReviewCount, ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for one account; ages in seconds, None when nothing waits."""

    provider: str
    account: str
    due: int
    scheduled: int
    claimed: int
    on_hold: int
    unknown: int
    oldest_due_age_s: float | None
    oldest_unknown_age_s: float | None


@dataclass(frozen=True, slots=True)
class CaptureHealth:
    """What the database says about change capture; slot values are None when there is no such slot."""

    wal_level: str
    publication: bool
    max_slot_wal_keep_size: str
    slot_active: bool | None
    slot_wal_status: str | None
    slot_retained_bytes: int | None


@dataclass(frozen=True, slots=True)
class History:
    """Every change of one action as the status topic told it, and all evidence."""

    events: tuple[dict[str, Any], ...]
    evidence: tuple[Evidence, ...]


def _summary_from(item: dict[str, Any]) -> ActionSummary:
    def instant(name: str) -> datetime | None:
        return None if item[name] is None else datetime.fromisoformat(item[name])

    values = {name: item[name] for name in ActionSummary.__dataclass_fields__}
    return ActionSummary(
        **{
            **values,
            "action_id": UUID(item["action_id"]),
            "execution_state": ExecutionState(item["execution_state"]),
            "delivery_state": DeliveryState(item["delivery_state"]),
            "receipt_state": ReceiptState(item["receipt_state"]),
            "check_again_at": instant("check_again_at"),
            "created_at": instant("created_at"),
            "updated_at": instant("updated_at"),
        }
    )


class Reports:
    """One method, one round trip."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def actions(
        self,
        *,
        provider: str | None = None,
        execution_state: str | None = None,
        delivery_state: str | None = None,
        created_by: str | None = None,
        limit: int = 50,
    ) -> list[ActionSummary]:
        """Return actions, newest first."""
        rows = await self._session.rows(
            "select outbox.list_actions(%s, %s, %s, %s, %s) as action",
            [provider, execution_state, delivery_state, created_by, limit],
        )
        return [_summary_from(row["action"]) for row in rows]

    async def action(self, key_or_id: str) -> ActionSummary:
        """Return one action by id or idempotency key; raises NotFound."""
        found = await self._session.value("select outbox.find_action(%s)", [key_or_id])
        if found is None:
            raise NotFound(f"no action has the id or idempotency key {key_or_id!r}")
        return _summary_from(found)

    async def history(self, action_id: ActionId) -> History:
        """Return what happened to one action."""
        row = (await self._session.rows("select * from outbox.action_history(%s)", [action_id]))[0]
        return History(tuple(row["events"]), tuple(evidence_from(item) for item in row["evidence"]))

    async def counters(self) -> Counters:
        """Return all counters in one snapshot."""
        found = await self._session.value("select outbox.action_counters()")
        return Counters(
            tuple(CreatedCount(**item) for item in found["created"]),
            tuple(StateCount(**item) for item in found["states"]),
            tuple(ReviewCount(**item) for item in found["awaiting_review"]),
        )

    async def backlog(self) -> list[Backlog]:
        """Return what waits, per account."""
        return [Backlog(**row) for row in await self._session.rows("select * from outbox.backlog()")]

    async def capture_health(self, slot_name: str) -> CaptureHealth:
        """Return the state of publication and slot."""
        found = await self._session.value("select outbox.capture_health(%s)", [slot_name])
        slot = found["slot"] or {}
        return CaptureHealth(
            wal_level=found["wal_level"],
            publication=found["publication"],
            max_slot_wal_keep_size=found["max_slot_wal_keep_size"],
            slot_active=slot.get("active"),
            slot_wal_status=slot.get("wal_status"),
            slot_retained_bytes=slot.get("retained_bytes"),
        )
