"""An agent can be tested against nothing but PostgreSQL: legal steps only, and only where the environment is test."""

from __future__ import annotations

import pytest

from outbox_relay.ledger.migrate import migrate
from tests.ledger.factories import Stage
from tests.plugins.postgres import PostgresServer, drop_database, make_database

SETTLE = "select outbox_testing.settle(%s, %s)"
OUTCOMES = {
    "accepted": ("dispatch_finished", "delivery_confirmed"),
    "refused": ("dispatch_finished", "delivery_rejected"),
    "unknown": ("dispatch_finished", "delivery_unknown"),
    "unknown_then_confirmed": ("dispatch_finished", "reconciled_confirmed"),
    "unknown_then_failed": ("dispatch_finished", "reconciled_failed"),
    "on_hold": ("on_hold", "delivery_pending"),
    "cancelled": ("cancelled", "not_sent"),
    "expired": ("expired", "not_sent"),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_reached_by_legal_steps(stage: Stage, outcome: str) -> None:
    action = stage.insert("k1")
    stage.one(SETTLE, "k1", outcome, role="agent")
    facts = stage.facts(action)
    assert (facts["execution_state"], facts["delivery_state"]) == OUTCOMES[outcome]
    assert stage.one("select count(*) from outbox.action_events") == facts["event_sequence"]


def test_an_unknown_can_be_settled_in_a_second_step(stage: Stage) -> None:
    stage.insert("k1")
    stage.one(SETTLE, "k1", "unknown", role="agent")
    assert stage.one(SETTLE, "k1", "unknown_then_confirmed", role="agent") == "reconciled_confirmed"


@pytest.mark.parametrize(
    ("first", "second"), [("accepted", "cancelled"), ("refused", "expired"), ("cancelled", "expired")]
)
def test_what_is_settled_stays_settled(stage: Stage, first: str, second: str) -> None:
    stage.insert("k1")
    stage.one(SETTLE, "k1", first, role="agent")
    assert stage.refusal("agent", SETTLE, "k1", second) == "OB002"


def test_what_does_not_exist_is_refused(stage: Stage) -> None:
    stage.insert("k1")
    assert stage.refusal("agent", SETTLE, "k2", "accepted") == "OB009"
    assert stage.refusal("agent", SETTLE, "k1", "delivered") == "OB011"


def test_it_is_refused_outside_the_environment_test(postgres_server: PostgresServer) -> None:
    database = make_database(postgres_server)
    try:
        migrate(database.dsn(), environment="production", testing=True)
        stage = Stage(database)
        stage.declare()
        stage.insert("k1")
        assert stage.refusal("agent", SETTLE, "k1", "accepted") == "OB008"
    finally:
        drop_database(database)
