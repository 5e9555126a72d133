"""An agent that crashes before its checkpoint and runs its whole turn again (case O12)."""

from __future__ import annotations

import json

import psycopg
import pytest

from outbox_relay.trial.processes import HOLDING_PROFILE
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import Scenario
from tests.faults.troubles import requests_per_key, wait_for
from tests.plugins.processes import SetStage

NAMES = ["order:42:mail", "order:42:receipt", "order:42:survey"]


def run_turn(stage: Scenario, *, changed: str | None = None) -> list[tuple[object, str]]:
    """One turn: a change of the agent's own data and three actions, in one transaction. Gives id and advice of each."""
    sample = sample_of("resend")
    with psycopg.connect(stage.ledger.dsn("agent")) as connection:
        connection.execute("insert into shop.turns default values")
        found = []
        for name in NAMES:
            payload = json.dumps(sample.worded("changed" if name == changed else name))
            row = connection.execute(
                "select action_id, advice from outbox.enqueue('resend', 'emails.send', %s, %s::text)", [name, payload]
            ).fetchone()
            assert row is not None
            found.append(row)
        return found


def test_a_turn_that_is_run_again_adds_no_action_and_a_changed_one_is_refused_whole(scenario: SetStage) -> None:
    stage = scenario("resend", profile=HOLDING_PROFILE)
    with psycopg.connect(stage.ledger.dsn("owner"), autocommit=True) as owner:
        owner.execute("create schema shop")
        owner.execute("create table shop.turns (number bigint generated always as identity)")
        owner.execute("grant usage on schema shop to public")
        owner.execute("grant insert on shop.turns to public")
        first = run_turn(stage)
        stage.start_relay()
        wait_for(stage, 3, "delivery_confirmed")
        again = run_turn(stage)
        assert [action for action, _ in again] == [action for action, _ in first]
        assert {advice for _, advice in again} == {"accepted"}
        with pytest.raises(psycopg.DatabaseError) as refused:
            run_turn(stage, changed="order:42:receipt")
        turns = owner.execute("select count(*) from shop.turns").fetchone()
    said = refused.value.diag
    detail = json.loads(said.message_detail or "{}")
    assert (detail["action_id"], detail["differs"], detail["advice"]) == (str(first[1][0]), "payload", "accepted")
    assert said.message_hint
    assert turns == (2,), "the refused turn left nothing of its own either"
    # What comes after them shows that nothing of the repeated turns is still on its way.
    stage.add("resend", ["after"])
    wait_for(stage, 4, "delivery_confirmed")
    assert requests_per_key(stage.providers["resend"].book) == dict.fromkeys([*NAMES, "after"], 1)
