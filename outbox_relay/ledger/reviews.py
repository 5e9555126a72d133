"""Reviews: the operator's queue, and the decisions of people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbox_relay.errors import NotFound
from outbox_relay.ledger.records import Evidence, Review
from outbox_relay.ledger.resolutions import evidence_from
from outbox_relay.ledger.session import Row, Session
from outbox_relay.states import DeliveryState, ExecutionState


@dataclass(frozen=True, slots=True)
class ReviewDetail:
    """What a person must see before deciding: the request, every change and all evidence."""

    review: Review
    request: dict[str, Any]
    """Recipient, approved content and what the first claim fixed. Holds the payload: for the reviewer only."""
    events: tuple[dict[str, Any], ...]
    evidence: tuple[Evidence, ...]


def _review_from(row: Row) -> Review:
    return Review(
        **{
            **row,
            "execution_state": ExecutionState(row["execution_state"]),
            "delivery_state": DeliveryState(row["delivery_state"]),
        }
    )


class Reviews:
    """Asked by operators and by the reconciler's notices."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, open_only: bool = True, owner: str | None = None, limit: int = 100) -> list[Review]:
        """Return reviews, the most urgent first."""
        rows = await self._session.rows(
            "select * from outbox.list_reviews(%s, %s, null, %s)", [open_only, owner, limit]
        )
        return [_review_from(row) for row in rows]

    async def show(self, review_id: int) -> ReviewDetail:
        """Return one review with its request, history and evidence; raises NotFound."""
        rows = await self._session.rows("select * from outbox.list_reviews(false, null, %s, 1)", [review_id])
        if not rows:
            raise NotFound(f"there is no review {review_id}", hint="list them: outbox reviews list")
        review = _review_from(rows[0])
        history = (await self._session.rows("select * from outbox.action_history(%s)", [review.action_id]))[0]
        request = await self._session.value("select outbox.action_request(%s)", [review.action_id])
        return ReviewDetail(
            review=review,
            request=request,
            events=tuple(history["events"]),
            evidence=tuple(evidence_from(item) for item in history["evidence"]),
        )

    async def decide(self, review_id: int, decision: str, *, reason: str, reference: str | None = None) -> None:
        """Record a person's decision; raises NotFound, IllegalTransition or Refused."""
        await self._session.value(
            "select outbox.decide_review(%s, %s, %s, %s)", [review_id, decision, reason, reference]
        )
