"""An audit finds nothing in a ledger that was only used, and names everything that was done to one behind its back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from uuid import UUID

import pytest

from outbox_relay.states import STATES
from tests.ledger.crowd import Crowd
from tests.ledger.factories import Row, Stage, put_into
from tests.ledger.test_retention import DAY, forget, redact
from tests.plugins.places import ROOT

DOUBT: Row = {"kind": "no_response", "proves": "nothing", "reason": "timeout"}


def findings(stage: Stage, batch: int = 3) -> list[Row]:
    """Everything an audit finds, by the functions and the role that the command uses."""
    found = stage.rows("operator", "select finding, subject, detail from outbox.audit_totals()")
    for function in ("audit_actions", "audit_keys"):
        after = None
        for _ in range(1000):
            statement = f"select * from outbox.{function}(%s, %s)".encode()
            step = stage.as_("operator").execute(statement, [after, batch]).fetchone()
            assert step is not None
            found += step["findings"]
            after = step["last"]
            if after is None:
                break
    return found


def kinds(stage: Stage) -> set[tuple[str, str]]:
    return {(item["finding"], str(item["subject"])) for item in findings(stage)}


def corrupt(stage: Stage, statement: str, *values: object) -> None:
    """A superuser who switches every guard off."""
    with stage.owner.transaction():
        stage.owner.execute("set local session_replication_role = replica")
        assert stage.owner.execute(statement.encode(), values or None).rowcount != 0


def command(stage: Stage, *words: str) -> subprocess.CompletedProcess[str]:
    """`outbox audit`, as an operator runs it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    environ |= {"OUTBOX_DATABASE_URL": stage.ledger.dsn("operator"), "OUTBOX_ENVIRONMENT": "test"}
    return subprocess.run(
        [sys.executable, "-m", "outbox_relay.cli", *words],
        env=environ, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_every_state_that_functions_lead_to_holds(stage: Stage) -> None:
    for state in STATES:
        put_into(stage, state)
    assert findings(stage) == []


def test_a_ledger_at_work_shows_nothing_at_any_moment(stage: Stage) -> None:
    stage.declare({}, {"account": "other"})
    crowd = Crowd(stage, seed=23)
    running = threading.Thread(target=lambda: crowd.run(sessions=3, steps=60))
    running.start()
    looks = 0
    while running.is_alive():
        assert findings(stage, batch=50) == []
        looks += 1
    running.join()
    assert looks > 2
    assert crowd.unexpected == []
    assert findings(stage) == []


def test_a_hold_whose_cancel_met_an_acceptance_is_the_reconcilers(stage: Stage) -> None:
    action = stage.attempt("held")
    stage.late_acceptance(action)
    stage.decide(stage.review_of(action), "cancel")
    assert stage.state(action).execution == "on_hold"
    assert findings(stage) == []
    assert stage.resolve(action, "late_acceptance", provider_id="late-1") == "applied"
    assert findings(stage) == []


def test_what_retention_removed_is_no_finding(stage: Stage) -> None:
    stage.attempt("refused", evidence=DOUBT)
    stage.attempt("response_lost", evidence=DOUBT)
    stage.advance(31 * DAY)
    assert redact(stage) == 1
    assert findings(stage) == []
    stage.advance(200 * DAY)
    assert forget(stage) == 1
    assert findings(stage) == []


CORRUPTIONS = {
    "created_differs": "delete from outbox.counter_deltas",
    "key_missing": "delete from outbox.keys where action_id = %(id)s",
    "intent_changed": "update outbox.outbound_actions set recipient = 'thief@example.com' where action_id = %(id)s",
    "redacted_open": "update outbox.outbound_actions set payload = '{}', redacted_at = now() where action_id = %(id)s",
    "queue_differs": "delete from outbox.work_queue where action_id = %(id)s",
    "no_owner": "update outbox.work_queue set due_at = 'infinity' where action_id = %(id)s",
    "history_gap": "delete from outbox.action_events where action_id = %(id)s and sequence = 2",
    "history_broken": "update outbox.action_events set data = jsonb_set(data::jsonb, '{previous_execution_state}',"
    " '\"action_created\"')::text where action_id = %(id)s and sequence = 3",
    "step_not_listed": "update outbox.action_events set data = replace(data, 'response_lost', 'accepted')"
    " where action_id = %(id)s and sequence = 3",
    "row_differs": "update outbox.outbound_actions set attempt_count = 7 where action_id = %(id)s",
    "event_without_action": "delete from outbox.outbound_actions where action_id = %(id)s",
    "event_unreadable": "update outbox.action_events set data = 'x' where action_id = %(id)s and sequence = 1",
}


@pytest.mark.parametrize("finding", CORRUPTIONS)
def test_what_was_done_behind_the_functions_is_named(stage: Stage, finding: str) -> None:
    bystanders = [stage.attempt("accepted", provider_id="1"), stage.attempt("held"), stage.insert()]
    action = stage.attempt("response_lost", evidence=DOUBT)
    with stage.owner.transaction():
        stage.owner.execute("set local session_replication_role = replica")
        changed = stage.owner.execute(CORRUPTIONS[finding].encode(), {"id": action})
        assert changed.rowcount > 0
    found = kinds(stage)
    assert finding in {kind for kind, _ in found}
    if finding not in {"created_differs", "event_unreadable"}:
        assert (finding, str(action)) in found
        assert not {subject for _, subject in found} & {str(other) for other in bystanders}


def test_every_trace_of_a_deleted_action_is_found(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    corrupt(stage, "delete from outbox.outbound_actions")
    assert {kind for kind, _ in kinds(stage)} == {
        "created_differs", "queued_without_action", "key_without_action", "event_without_action",
    }  # fmt: skip
    assert ("key_without_action", str(action)) in kinds(stage)


def test_a_hold_without_a_review_and_a_claim_without_a_holder_are_found(stage: Stage) -> None:
    held = stage.attempt("held")
    started = stage.started()[0]
    unused = stage.attempt("accepted", provider_id="1")
    corrupt(stage, "delete from outbox.reviews where action_id = %s", held)
    corrupt(stage, "update outbox.work_queue set claim_token = null where action_id = %s", started)
    columns = "(action_id, kind, proves, reason)"
    corrupt(stage, f"insert into outbox.evidence {columns} values (%s, 'late_acceptance', 'acceptance', 'x')", unused)
    assert kinds(stage) == {("no_owner", str(held)), ("no_claim", str(started)), ("evidence_unused", str(unused))}


def test_a_lost_tail_and_a_lost_history_are_found(stage: Stage) -> None:
    tail, whole = stage.attempt("accepted", provider_id="1"), stage.attempt("accepted", provider_id="2")
    corrupt(stage, "delete from outbox.action_events where action_id = %s and sequence = 3", tail)
    corrupt(stage, "delete from outbox.action_events where action_id = %s", whole)
    assert kinds(stage) == {("history_gap", str(tail)), ("history_gap", str(whole))}


def test_the_command_names_each_finding_and_exits_with_6(stage: Stage) -> None:
    action: UUID = stage.attempt("response_lost")
    good = command(stage, "audit")
    assert (good.returncode, good.stdout) == (0, "")
    assert "1 actions and 1 keys" in good.stderr
    corrupt(stage, "update outbox.outbound_actions set attempt_count = 7")
    bad = command(stage, "--output", "json", "audit", "--batch", "1")
    assert bad.returncode == 6, bad.stderr
    assert "row_differs" in bad.stderr
    told = json.loads(bad.stdout)
    assert told["kinds"] == {"row_differs": 1}
    assert told["findings"][0]["subject"] == str(action)
