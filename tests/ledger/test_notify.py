"""NOTIFY is opt-in, comes from whoever stores outcomes, says nothing, and never comes from an INSERT."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from uuid import uuid4

import psycopg
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


def test_an_agent_commits_while_a_notifying_commit_stands_still(stage: Stage) -> None:
    """Notifying commits go one after the other, behind one lock of the server; an agent's is none of them.

    A standby that does not answer holds the relay's commit after it took that lock.
    """
    stage.insert("first")
    relay = Stage(stage.ledger)
    relay.as_("relay").execute("set outbox.notify = 'on'")
    agent = stage.as_("agent")
    agent.execute("set synchronous_commit = local")
    agent.execute("set lock_timeout = '300ms'")
    stage.rows("owner", "alter system set synchronous_standby_names = 'nobody'")
    claim = threading.Thread(target=relay.claim, daemon=True)
    try:
        stage.rows("owner", "select pg_reload_conf()")
        stage.owner.execute("set synchronous_commit = local")
        claim.start()
        until_waiting_for_the_standby(stage, relay.as_("relay").info.backend_pid)
        stage.insert("second")
        assert stage.refusal("agent", "select pg_notify('other', '')") is None, "the lock is taken by the commit"
        with pytest.raises(psycopg.errors.LockNotAvailable):
            agent.execute("select pg_notify('other', '')")
    finally:
        stage.rows("owner", "alter system reset synchronous_standby_names")
        stage.rows("owner", "select pg_reload_conf()")
        claim.join(WAIT_S)
    assert stage.one("select count(*) from outbox.outbound_actions where execution_state = 'dispatch_started'") == 1


def until_waiting_for_the_standby(stage: Stage, pid: int) -> None:
    """Wait until this backend's commit waits for a standby."""
    deadline = time.monotonic() + WAIT_S
    waiting = "select wait_event = 'SyncRep' from pg_stat_activity where pid = %s"
    while not stage.one(waiting, pid):
        assert time.monotonic() < deadline, "the commit went through"
        time.sleep(0.02)
