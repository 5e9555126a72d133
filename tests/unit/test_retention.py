"""The reconciler walks from the oldest action on, in bounded steps, and rests at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from outbox_relay.ledger.retention import Pass
from outbox_relay.telemetry import ReconcilerMetrics, get_logger
from reconciler.retention import BATCHES_PER_TURN, REST_S, Retainer, RetentionTerms

HERE = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Store:
    """Answers as told, and remembers what it was asked."""

    answers: list[Pass]
    asked: list[tuple[object, ...]] = field(default_factory=list)

    async def redact(self, days: int, *, after: datetime | None = None, limit: int = 500) -> Pass:
        self.asked.append(("redact", days, after, limit))
        return self.answers.pop(0)

    async def delete_history(
        self, days: int, *, redacted_days: int, after: datetime | None = None, limit: int = 500
    ) -> Pass:
        self.asked.append(("delete", days, redacted_days, after, limit))
        return self.answers.pop(0)


@dataclass
class Clock:
    """Stands still until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def retainer(store: Store, clock: Clock, redact: int = 90, events: int = 400) -> Retainer:
    metrics = ReconcilerMetrics(CollectorRegistry())
    return Retainer(store, RetentionTerms(redact, events), metrics=metrics, log=get_logger("test"), clock=clock)


async def test_a_turn_is_bounded_and_the_next_one_goes_on_where_it_stopped() -> None:
    store = Store([Pass(500, HERE)] * BATCHES_PER_TURN + [Pass(0, None)])
    forgetful = retainer(store, Clock(), events=0)
    await forgetful.turn()
    assert [asked[2] for asked in store.asked] == [None, *[HERE] * (BATCHES_PER_TURN - 1)]
    await forgetful.turn()
    assert store.asked[-1] == ("redact", 90, HERE, 500)


async def test_at_the_end_it_rests_and_then_begins_anew() -> None:
    store, clock = Store([Pass(1, None)] * 2), Clock()
    forgetful = retainer(store, clock, events=0)
    for _ in range(3):
        await forgetful.turn()
    assert len(store.asked) == 1
    clock.now = REST_S
    await forgetful.turn()
    assert store.asked[1:] == [("redact", 90, None, 500)]


async def test_history_goes_so_long_after_the_payload_that_the_days_add_up() -> None:
    store = Store([Pass(0, None)] * 2)
    await retainer(store, Clock()).turn()
    assert store.asked == [("redact", 90, None, 500), ("delete", 400, 310, None, 500)]


async def test_never_means_never() -> None:
    store = Store([])
    await retainer(store, Clock(), redact=0).turn()
    assert store.asked == []
