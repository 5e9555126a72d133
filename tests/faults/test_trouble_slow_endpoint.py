"""One endpoint hangs on every call, and nobody else may notice (case O13)."""

from __future__ import annotations

import statistics

import psycopg
import pytest

from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import wait_until
from outbox_relay.trial.scenario import Scenario
from tests.faults.troubles import PATIENT, SETTLE_S, keys, series, wait_for
from tests.plugins.processes import SetStage

pytestmark = pytest.mark.timeout(300)  # several waits in a row, each of them long on a loaded machine

SLOW, HEALTHY = "github", "resend"
ROUNDS, EACH, BACKLOG = 5, 40, 400
RATIO_MAX = 4.0
SLACK_S = 0.5
"""On a busy machine a few slow moments make a tail of their own; serial workers would take seconds per action."""
MEMORY_MAX_BYTES = 40 * 1024 * 1024


def latencies_s(stage: Scenario, prefix: str) -> list[float]:
    """From the commit of an action (of its batch's last row) to its stored acceptance."""
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        rows = connection.execute(
            "select extract(epoch from e.occurred_at - max(a.created_at) over"
            " (partition by split_part(a.idempotency_key, '/', 2)))::float"
            " from outbox.outbound_actions a join outbox.action_events e using (action_id)"
            " where starts_with(a.idempotency_key, %s) and e.data::json ->> 'event' = 'accepted'",
            [prefix],
        ).fetchall()
    return [row[0] for row in rows]


def send_rounds(stage: Scenario, name: str, *, with_backlog: bool) -> float:
    """Several rounds of healthy actions, with the slow one's backlog in between; the 99th percentile in seconds."""
    for turn in range(ROUNDS):
        if with_backlog:
            stage.add(SLOW, keys(f"slow/{turn}", BACKLOG))
        stage.add(HEALTHY, keys(f"{name}/{turn}", EACH))
        wait_for(stage, EACH, "delivery_confirmed", prefix=f"{name}/{turn}")
    found = latencies_s(stage, f"{name}/")
    assert len(found) == ROUNDS * EACH
    return statistics.quantiles(found, n=100)[98]


def test_a_hanging_endpoint_slows_no_other_and_costs_no_memory(scenario: SetStage) -> None:
    stage = scenario(SLOW, HEALTHY, profile=PATIENT)
    stage.providers[SLOW].spoil(Fault.HANG, times=None)
    relay = stage.start_relay()
    send_rounds(stage, "warm", with_backlog=False)
    alone_s = send_rounds(stage, "alone", with_backlog=False)
    memory = series(relay, "process_resident_memory_bytes")
    beside_s = send_rounds(stage, "beside", with_backlog=True)
    wait_until(
        lambda: series(relay, "outbox_provider_circuit_open", f'provider="{SLOW}"') == 1,
        timeout_s=SETTLE_S,
        what="the breaker to open",
    )
    blocked_s = send_rounds(stage, "blocked", with_backlog=False)
    assert max(beside_s, blocked_s) <= RATIO_MAX * alone_s + SLACK_S
    assert series(relay, "process_resident_memory_bytes") - memory < MEMORY_MAX_BYTES
    assert len(stage.providers[SLOW].book.requests()) < ROUNDS * BACKLOG / 10, "the backlog waits in the ledger"
    assert set(stage.providers[HEALTHY].book.effects_per_key().values()) == {1}
