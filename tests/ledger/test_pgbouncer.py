"""Everybody through PgBouncer in transaction mode: no statement of agents or programs needs a session of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.pool import open_ledger
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile
from outbox_relay.trial.scenario import Scenario, open_scenario
from tests.ledger.factories import PAYLOAD, Stage
from tests.plugins.pooler import PooledLedger, pooler
from tests.plugins.postgres import TrialDatabase

PATIENT = Profile("patient", deadline_s=5, lease_s=10, sweep_s=0.5, shortens_contracts=True)
INSERT = (
    "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
    " values ('mail', 'send', %s, %s)"
)
CLIENTS = 8
"""More than the pooler has connections, so that they must share."""


@pytest.fixture
def agents(pooled: PooledLedger) -> Iterator[list[psycopg.Connection]]:
    """Sessions of the agent's role that take turns on fewer connections to the server."""
    Stage(pooled.database).declare()
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(pooled.dsn("agent"), autocommit=True)) for _ in range(CLIENTS)]


def test_agents_insert_enqueue_cancel_and_read_through_a_pooler(agents: list[psycopg.Connection]) -> None:
    payload = json.dumps(PAYLOAD)
    for number, agent in enumerate(agents):
        with agent.transaction():
            agent.execute(INSERT, [f"k{number}", payload])
        assert (
            agent.execute(INSERT + " on conflict (idempotency_key) do nothing", [f"k{number}", payload]).rowcount == 0
        )
        enqueue = "select created, advice from outbox.enqueue('mail', 'send', %s, %s)"
        assert agent.execute(enqueue, [f"e{number}", payload]).fetchone() == (True, "wait")
        with agent.cursor().copy(
            "copy outbox.outbound_actions (provider, operation, idempotency_key, payload) from stdin"
        ) as copy:
            copy.write_row(("mail", "send", f"c{number}", payload))
    for number, agent in enumerate(agents):
        cancel = "select outcome from outbox.cancel(%s)"
        assert agent.execute(cancel, [f"k{number}"]).fetchone() == ("cancelled",)
        status = "select advice from outbox.action_status where idempotency_key = %s"
        assert agent.execute(status, [f"k{number}"]).fetchone() == ("not_sent",)
    changes = agents[0].execute("select count(*) from outbox.changes('', 1000)").fetchone()
    assert changes == (4 * CLIENTS,)


def test_a_refusal_behind_a_savepoint_spoils_no_other_client(agents: list[psycopg.Connection]) -> None:
    first, second, *_ = agents
    with first.transaction():
        first.execute(INSERT, ["k1", json.dumps(PAYLOAD)])
        with pytest.raises(psycopg.Error) as refused, first.transaction():
            first.execute(INSERT, ["k1", json.dumps(PAYLOAD | {"to": "b@example.com"})])
        second.execute(INSERT, ["k2", json.dumps(PAYLOAD)])
    assert refused.value.sqlstate == "OB001"
    assert first.execute("select count(*) from outbox.action_status").fetchone() == (2,)


@contextmanager
def pooled_stage(pooled: PooledLedger, folder: Path) -> Iterator[Scenario]:
    with open_scenario(pooled, folder, providers=("resend",), profile=PATIENT) as stage:
        yield stage


def test_a_relay_and_a_reconciler_work_through_a_pooler(pooled: PooledLedger, tmp_path: Path) -> None:
    with pooled_stage(pooled, tmp_path) as stage:
        stage.providers["resend"].spoil(Fault.ACCEPT_THEN_DROP, key="lost", times=1)
        stage.start_relay()
        stage.start_reconciler()
        keys = [f"deploy:{number}" for number in range(30)] + ["lost"]
        stage.add("resend", keys)
        stage.wait_settled(timeout_s=90)
        found = {each.key: each.delivery_state for each in stage.standings()}
        assert found == dict.fromkeys(keys, "delivery_confirmed") | {"lost": "reconciled_confirmed"}


async def test_a_pooler_that_refuses_our_settings_is_named_with_what_to_do(ledger: TrialDatabase) -> None:
    with pooler(ledger.server, ignored="extra_float_digits") as port:
        dsn = PooledLedger(ledger, port).dsn("relay")
        with pytest.raises(LedgerUnavailable, match="startup parameter") as refused:
            async with open_ledger(dsn, environment="test", application="test"):
                pass
    assert "ignore_startup_parameters" in (refused.value.hint or "")


async def test_the_time_limits_of_a_role_hold_through_a_pooler(pooled: PooledLedger) -> None:
    """What docs/operating.md says to do, since a pooler drops what a program asks for on its own connection."""
    owner = pooled.database.connect()
    owner.execute(f"alter role outbox_relay in database {pooled.database.name} set statement_timeout = '7s'".encode())
    with psycopg.connect(pooled.dsn("relay"), options="-c statement_timeout=3s") as relay:
        assert relay.execute("show statement_timeout").fetchone() == ("7s",)
