"""Outcomes: what the attempts of the relay proved, written a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_relay.ledger.records import Outcome, Recorded, Verdict
from outbox_relay.ledger.session import Row, Session, as_json
from outbox_relay.states import DeliveryState, ExecutionState


def recorded_from(row: Row) -> Recorded:
    """Build the ledger's answer from a row (action_id, verdict, execution_state, delivery_state)."""
    return Recorded(
        action_id=row["action_id"],
        verdict=Verdict(row["verdict"]),
        execution_state=ExecutionState(row["execution_state"]),
        delivery_state=DeliveryState(row["delivery_state"]),
    )


def recorded_in(rows: Sequence[Row]) -> list[Recorded]:
    """The answers about actions that this ledger has.

    About an action that it lost, because it was restored to an older point, it can say nothing; what was learned of
    that action is kept as evidence all the same.
    """
    return [recorded_from(row) for row in rows if row["execution_state"] is not None]


class Outcomes:
    """One method, one round trip."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def record(self, outcomes: Sequence[Outcome]) -> list[Recorded]:
        """Store outcomes in one transaction; the answers come in order of action id.

        Safe to repeat after a LedgerUnavailable: an outcome that was stored already answers STALE.
        """
        rows = await self._session.rows("select * from outbox.record_outcomes(%s)", [as_json(outcomes)])
        return recorded_in(rows)
