"""NOTIFY is opt-in, comes from whoever stores outcomes, says nothing, and never comes from an INSERT."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from outbox_relay.ledger.pool import open_ledger
from outbox_relay.ledger.records import ClaimToken, Demand
from tests.ledger.factories import Stage

CHANNEL = "outbox_changes"
WAIT_S = 60.0


@pytest.fixture
def heard(stage: Stage) -> Callable[[], list[str]]:
    """What an agent that listens was told until now: what a marker, sent now, comes after."""
    listener = stage.ledger.connect("agent")
    listener.execute(f"listen {CHANNEL}".encode())

    def told() -> list[str]:
        mark = f"mark {uuid4()}"
        stage.rows("owner", "select pg_notify(%s, %s)::text", CHANNEL, mark)
        payloads: list[str] = []
        for notify in listener.notifies(timeout=WAIT_S):
            if notify.payload == mark:
                return payloads
            payloads.append(notify.payload)
        raise AssertionError("the marker did not come")

    return told


async def claim_with(stage: Stage, *, notify: bool) -> int:
    """A program claims through its own pool; how many."""
    async with open_ledger(
        stage.ledger.dsn("relay"), environment="test", application="test", max_size=1, notify=notify
    ) as ledger:
        demand = [Demand("mail", "default", 10)]
        claims = await ledger.claims.claim(demand, token=ClaimToken(uuid4()), lease_s=60, deadline_s=1, worker="test")
        return len(claims)


async def test_a_program_that_was_asked_to_notifies_once_per_write_and_says_nothing(
    stage: Stage, heard: Callable[[], list[str]]
) -> None:
    for _ in range(5):
        stage.insert()
    assert await claim_with(stage, notify=True) == 5
    assert heard() == [""]


async def test_nothing_is_notified_unless_asked(stage: Stage, heard: Callable[[], list[str]]) -> None:
    stage.insert()
    assert await claim_with(stage, notify=False) == 1
    assert heard() == []


def test_an_insert_notifies_nobody_whatever_the_session_says(stage: Stage, heard: Callable[[], list[str]]) -> None:
    """A NOTIFY in an agent's transaction would make all agents commit one after the other."""
    stage.as_("agent").execute("set outbox.notify = 'on'")
    stage.insert("a")
    stage.rows("agent", "select outbox.enqueue('mail', 'send', 'b', '{\"to\": \"a@example.com\"}'::jsonb)")
    assert heard() == []


def test_what_is_rolled_back_is_not_notified(stage: Stage, heard: Callable[[], list[str]]) -> None:
    stage.insert()
    relay = stage.as_("relay")
    relay.execute("set outbox.notify = 'on'")
    with relay.transaction(force_rollback=True):
        assert stage.claim()["ids"]
    assert heard() == []
