"""What the tests of other people's trouble share: patient timings, and short ways to ask the stage."""

from __future__ import annotations

from typing import Any

import psycopg

from outbox_relay.trial.book import Book
from outbox_relay.trial.processes import HttpProgram, Profile
from outbox_relay.trial.scenario import Scenario, Standing

PATIENT = Profile("patient", deadline_s=3, lease_s=6, sweep_s=0.25, shortens_contracts=True)
"""A loaded machine must not make unknowns of its own."""
HOLDING = Profile("many held", deadline_s=5, lease_s=10, sweep_s=0.25, shortens_contracts=True)
"""For hundreds of answers that are held at once."""
SETTLE_S = 60.0
CONFIRMED = frozenset({"delivery_confirmed", "reconciled_confirmed"})


def keys(name: str, count: int) -> list[str]:
    """Keys that begin with `name`, none of them the beginning of another."""
    return [f"{name}/{number:04}" for number in range(count)]


def series(program: HttpProgram, name: str, labels: str = "") -> float:
    """The sum of a metric over the labels that are not named."""
    found = program.metrics().items()
    return sum(value for sample, value in found if sample.partition("{")[0] == name and labels in sample)


def confirmed(standing: Standing) -> bool:
    """Established as accepted, in whatever way."""
    return standing.delivery_state in CONFIRMED


def requests_per_key(book: Book) -> dict[str | None, int]:
    """How often each action arrived."""
    found: dict[str | None, int] = {}
    for line in book.requests():
        found[line.ref] = found.get(line.ref, 0) + 1
    return found


def wait_for(stage: Scenario, count: int, state: str, *, prefix: str = "") -> None:
    """Wait until so many actions are in an execution or delivery state."""
    condition = "starts_with(a.idempotency_key, %s) and %s in (a.execution_state, a.delivery_state)"
    stage.wait_for_count(count, condition, prefix, state, timeout_s=SETTLE_S, what=f"{count} x {state}")


def row_of(stage: Scenario, query: Any, *values: object) -> tuple[Any, ...]:
    """The one row that a query of the administrator gives."""
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        rows = connection.execute(query, values).fetchall()
    assert len(rows) == 1, rows
    return tuple(rows[0])


def review_of(stage: Scenario, key: str) -> tuple[str, str, str]:
    """Reason, owner and next step of the open review of an action."""
    reason, owner, next_step = row_of(
        stage,
        "select r.reason, r.owner, r.next_step from outbox.reviews r join outbox.outbound_actions a using (action_id)"
        " where a.idempotency_key = %s and r.closed_at is null",
        key,
    )
    return reason, owner, next_step
