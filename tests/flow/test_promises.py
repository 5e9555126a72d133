"""Five promises by name, each on the real ledger, the real programs, and a provider with a book of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from outbox_relay.ledger.migrate import migrate
from outbox_relay.local.stack import Stack
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.grounds import TrialLedger
from outbox_relay.trial.processes import TEST_PROFILE
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import ENVIRONMENT, Scenario, open_scenario
from tests.plugins.processes import SetStage

SETTLE_S = 45.0


def keys_sent(stage: Scenario, provider: str, key: str) -> set[str | None]:
    return {line.wire_key for line in stage.providers[provider].book.requests(key)}


def test_same_logical_action_same_key(scenario: SetStage) -> None:
    """Triggered three times, sent twice: one action, one key, one effect."""
    stage = scenario("resend")
    stage.providers["resend"].spoil(Fault.ACCEPT_THEN_DROP, key="invoice:7:sent")
    stage.start_reconciler()
    stage.start_relay()
    for _ in range(3):
        stage.add("resend", ["invoice:7:sent"])
    stage.wait_settled(timeout_s=SETTLE_S)
    (standing,) = stage.standings()
    assert standing.delivery_state == "reconciled_confirmed"
    book = stage.providers["resend"].book
    assert len(book.requests()) == 2, "the first attempt and the replay"
    assert keys_sent(stage, "resend", "invoice:7:sent") == {"invoice:7:sent"}
    assert book.effects_per_key() == {"invoice:7:sent": 1}


def test_unknown_no_blind_duplicate_send(scenario: SetStage) -> None:
    """Without a reconciler nobody may decide: relays come and go, and the unknown is not sent again."""
    stage = scenario("resend", "github")
    for provider in ("resend", "github"):
        stage.providers[provider].spoil(Fault.ACCEPT_THEN_DROP, times=None)
        stage.add(provider, [f"{provider}:{number}" for number in range(20)])
    relay = stage.start_relay()
    unknown = "delivery_state = 'delivery_unknown'"
    stage.wait_for_count(40, unknown, timeout_s=SETTLE_S, what="40 unknowns")
    relay.kill()
    stage.start_relay("another-relay")
    for provider in ("resend", "github"):
        stage.providers[provider].spoil(Fault.NONE, times=None)
        stage.add(provider, [f"{provider}:later:{number}" for number in range(20)])
    stage.wait_for_count(40, "delivery_state = 'delivery_confirmed'", timeout_s=SETTLE_S, what="40 later ones")
    assert stage.count(unknown) == 40
    for provider in ("resend", "github"):
        book = stage.providers[provider].book
        assert len(book.requests()) == 40
        assert set(book.effects_per_key().values()) == {1}


def test_restart_ledger_survives(tmp_path: Path) -> None:
    """PostgreSQL and every program are killed in the middle; all that was committed is dealt with, once."""
    with Stack(tmp_path, durable=True, name="restart") as stack:
        stack.start_postgres()
        with psycopg.connect(stack.postgres.dsn(), autocommit=True) as connection:
            connection.execute("create database survivor")
        ledger = TrialLedger(stack.postgres.dsn("survivor"))
        migrate(ledger.url, environment=ENVIRONMENT)
        with open_scenario(ledger, tmp_path, providers=("resend",), profile=TEST_PROFILE) as stage:
            stage.providers["resend"].spoil(Fault.ACCEPT_THEN_HANG, times=5)
            programs = [stage.start_relay("relay-before"), stage.start_reconciler("reconciler-before")]
            keys = [f"survivor:{number}" for number in range(50)]
            stage.add("resend", keys)
            stage.providers["resend"].program.wait_for("accepted", count=5, fault="accept_then_hang")
            stack.postgres.kill()
            for program in programs:
                program.kill()
            stage.providers["resend"].release("drop")
            stack.start_postgres()
            stage.start_reconciler("reconciler-after")
            stage.start_relay("relay-after")
            stage.wait_settled(timeout_s=SETTLE_S)
            confirmed = {"delivery_confirmed", "reconciled_confirmed"}
            assert [each.key for each in stage.standings() if each.delivery_state in confirmed] == sorted(keys)
            assert stage.providers["resend"].book.effects_per_key() == dict.fromkeys(keys, 1)


def test_reconciliation_explicit_terminal_state(scenario: SetStage) -> None:
    """Accepted or not, with a key or a lookup only: every unknown ends in a state that says what became of it."""
    stage = scenario("resend", "github")
    stage.start_reconciler()
    stage.start_relay()
    for provider in ("resend", "github"):
        stage.providers[provider].spoil(Fault.ACCEPT_THEN_DROP, times=None, nth=1, key_prefix="accepted")
        stage.providers[provider].spoil(Fault.DROP_BEFORE_RECEIPT, times=None, nth=1, key_prefix="dropped")
        stage.add(provider, [f"{what}:{provider}:{n}" for what in ("accepted", "dropped") for n in range(10)])
    stage.wait_settled(timeout_s=SETTLE_S)
    assert set(stage.reasons_for_unknown("")) == {each.key for each in stage.standings()}, "all of them were unknown"
    how = {(each.key.split(":")[0], each.key.split(":")[1], each.delivery_state, each.resolution)
           for each in stage.standings()}  # fmt: skip
    assert how == {
        ("accepted", "resend", "reconciled_confirmed", "replay"),
        ("dropped", "resend", "reconciled_confirmed", "replay"),
        ("accepted", "github", "reconciled_confirmed", "lookup"),
        ("dropped", "github", "delivery_confirmed", "response"),
    }
    for provider in ("resend", "github"):
        assert set(stage.providers[provider].book.effects_per_key().values()) == {1}


def test_review_request_and_provider_evidence(scenario: SetStage) -> None:
    """Nothing can establish it: a person gets the request as it was sent, what came back, and an owner is named."""
    stage = scenario("standard-webhooks")
    stage.providers["standard-webhooks"].spoil(Fault.SERVER_ERROR_AFTER_EFFECT, times=None)
    stage.start_reconciler()
    stage.start_relay()
    stage.add("standard-webhooks", ["hook:1"])
    stage.wait_settled(timeout_s=SETTLE_S)
    (standing,) = stage.standings()
    assert standing.delivery_state == "delivery_unknown"
    (listed,) = outbox(stage, "reviews", "list")
    shown = outbox(stage, "reviews", "show", str(listed["review_id"]))
    review, request = shown["review"], shown["request"]
    assert review["owner"] == "trial-oncall"
    assert review["missing"]
    assert review["next_step"]
    assert json.loads(request["payload"]) == sample_of("standard-webhooks").worded("hook:1")
    assert request["wire_key"] == "hook:1"
    (answer,) = [each for each in shown["evidence"] if each["kind"] == "response"]
    assert (answer["status"], answer["method"], answer["attempt"]) == (500, "POST", 1)
    assert answer["url"].startswith(stage.providers["standard-webhooks"].url)
    (sent,) = stage.providers["standard-webhooks"].book.requests()
    assert answer["body_sha256"] == sent.body_sha256
    assert len(stage.providers["standard-webhooks"].book.requests()) == 1, "nobody sent it again"


def outbox(stage: Scenario, *arguments: str) -> Any:
    """Run the operator's command and return its JSON."""
    environ = {**os.environ, **stage.environ, "OUTBOX_DATABASE_URL": stage.ledger.dsn("operator")}
    command = [sys.executable, "-m", "outbox_relay.cli", "--output", "json", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)
