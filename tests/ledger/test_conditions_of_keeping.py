"""One condition at a time of what audits the ledger and of what forgets: no finding too many, none too few."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tests.ledger.arranging import falling_ids, lay_last, use_no_index
from tests.ledger.factories import Row, Stage
from tests.ledger.test_audit import DOUBT, corrupt, findings
from tests.ledger.test_retention import DAY, evidence, forget, redact

STEP = "select * from outbox.{}(%s, %s)"


def found(stage: Stage, batch: int = 1) -> list[tuple[str, str]]:
    """Every finding, each as often as it is told."""
    return sorted((item["finding"], str(item["subject"])) for item in findings(stage, batch))


def change_event(stage: Stage, action: UUID, sequence: int, field: str, value: str) -> None:
    change = (
        "update outbox.action_events set data = jsonb_set(data::jsonb, array[%s], to_jsonb(%s::text))::text"
        " where action_id = %s and sequence = %s"
    )
    corrupt(stage, change, field, value, action, sequence)


def test_what_only_looks_wrong_is_no_finding(stage: Stage) -> None:
    stage.declare({}, {"account": "other"})
    stage.insert(account="other")
    in_review, claimed = stage.attempt("response_lost", evidence=DOUBT), stage.attempt("response_lost")
    token = stage.look()["token"]
    stage.ask(in_review, token=token)
    stage.ask(claimed, token=token)
    stage.late_acceptance(claimed)
    assert stage.look()["ids"] == [claimed]
    corrupt(stage, "update outbox.reviews set closed_at = now() where action_id = %s", claimed)
    stage.attempt("held")
    stage.started()
    same = stage.attempt("accepted", provider_id="1")
    stage.late_acceptance(same, "1")
    refused = stage.attempt("refused", evidence=DOUBT)
    stage.late_acceptance(stage.insert())
    stage.rows("owner", "insert into outbox.counters values ('mail', 'default', 'other', 5)")
    stage.one("select outbox.probe_write()::text", role="relay")
    stage.rows(
        "owner",
        "insert into outbox.counter_deltas (provider, account, name, amount) values ('mail', 'default', 'x', 1)",
    )
    lay_last(stage, "action_events", "sequence = 1")
    use_no_index(stage, "operator")
    assert found(stage) == []
    stage.advance(31 * DAY)
    assert redact(stage) == 2
    stage.advance(200 * DAY)
    assert forget(stage) == 2
    stage.late_acceptance(refused, "2")
    assert found(stage) == [], "what comes up later has no beginning any more"


def test_each_finding_is_told_once_and_alone(stage: Stage) -> None:
    for _ in range(2):
        stage.insert()
    wrong: list[tuple[str, UUID]] = []

    def unknown(finding: str) -> UUID:
        action = stage.attempt("response_lost", evidence=DOUBT)
        wrong.append((finding, action))
        return action

    moved = "update outbox.keys set action_id = %s, fingerprint = '' where action_id = %s"
    corrupt(stage, moved, uuid4(), unknown("key_missing"))
    corrupt(stage, "update outbox.keys set fingerprint = '' where action_id = %s", unknown("intent_changed"))
    started = stage.started()[0]
    corrupt(stage, "delete from outbox.work_queue where action_id = %s", started)
    unclaimed, untimed = stage.started()[0], stage.started()[0]
    corrupt(stage, "update outbox.work_queue set claimed_until = null where action_id = %s", untimed)
    held = stage.attempt("held")
    corrupt(stage, "update outbox.reviews set closed_at = now() where action_id = %s", held)
    forgotten = unknown("evidence_unused")
    stage.late_acceptance(forgotten)
    corrupt(stage, "update outbox.work_queue set evidence_waiting = false where action_id = %s", forgotten)
    corrupt(stage, "update outbox.work_queue set due_at = 'infinity' where action_id = %s", unknown("no_owner"))
    corrupt(stage, "delete from outbox.action_events where sequence = 2 and action_id = %s", unknown("history_gap"))
    corrupt(stage, "update outbox.outbound_actions set event_sequence = 2 where action_id = %s", unknown("history_gap"))
    change_event(stage, unknown("history_broken"), 1, "event", "claimed")
    wrong += [("queue_differs", started), ("no_claim", unclaimed), ("no_claim", untimed), ("no_owner", held)]
    gone = stage.attempt("held")
    corrupt(stage, "delete from outbox.outbound_actions where action_id = %s", gone)
    wrong += [(kind, gone) for kind in ("event_without_action", "queued_without_action")]
    corrupt(stage, "update outbox.work_queue set claim_token = null where action_id = %s", unclaimed)
    # Its key and the key that names another action.
    told = found(stage)
    assert ("key_without_action", str(gone)) in told
    expected = {(finding, str(subject)) for finding, subject in wrong}
    assert sorted(item for item in told if item[0] not in {"key_without_action", "created_differs"}) == sorted(expected)
    assert [item for item in told if item[0] == "created_differs"] == [("created_differs", "mail/default")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("previous_execution_state", "retry_scheduled"),
        ("previous_delivery_state", "delivery_confirmed"),
        ("event", "accepted"),
        ("execution_state", "on_hold"),
        ("delivery_state", "delivery_confirmed"),
    ],
)
def test_a_step_that_is_not_listed_is_found_by_each_of_its_parts(stage: Stage, field: str, value: str) -> None:
    action = stage.attempt("response_lost")
    change_event(stage, action, 3, field, value)
    assert ("step_not_listed", str(action)) in found(stage)


@pytest.mark.parametrize("data", ["x", "5", "[1]", '"x"', '{"attempt": "x"}', '{"attempt": [1]}'])
def test_an_event_that_nobody_can_read_is_a_finding_and_no_error(stage: Stage, data: str) -> None:
    action = stage.insert()
    corrupt(stage, "update outbox.action_events set data = %s where action_id = %s", data, action)
    assert "event_unreadable" in {finding for finding, _ in found(stage)}


def test_an_audit_goes_through_everything_once_in_order(stage: Stage) -> None:
    ids = falling_ids(stage, 5)
    corrupt(stage, "update outbox.outbound_actions set attempt_count = 7")
    lay_last(stage, "keys", "idempotency_key = 'falling-0'")
    use_no_index(stage, "operator")
    for function, limit in (("audit_actions", 2), ("audit_keys", 2)):
        after, looked, subjects = None, 0, []
        for _ in range(9):
            step = stage.as_("operator").execute(STEP.format(function).encode(), [after, limit]).fetchone()
            assert step is not None
            assert step["looked"] <= limit
            looked += step["looked"]
            subjects += [item["subject"] for item in step["findings"]]
            after = step["last"]
            if after is None:
                break
        assert (after, looked) == (None, 5), function
        assert subjects == ([str(action) for action in ids] if function == "audit_actions" else [])


def test_findings_are_told_in_order_and_say_what_is_wrong(stage: Stage) -> None:
    first, second = falling_ids(stage, 2)
    corrupt(stage, "update outbox.outbound_actions set attempt_count = 7, recipient = 'thief'")
    use_no_index(stage, "operator")
    step = stage.rows("operator", STEP.format("audit_actions"), None, 9)[0]
    told = [(item["subject"], item["finding"]) for item in step["findings"]]
    assert told == [(str(action), kind) for action in (first, second) for kind in ("intent_changed", "row_differs")]
    corrupt(stage, "update outbox.keys set action_id = %s where action_id = %s", first, second)
    assert key_details(stage) == ["the action carries another key"]
    corrupt(stage, "update outbox.keys set action_id = %s where action_id = %s", uuid4(), first)
    assert set(key_details(stage)) == {"the action of a known key is gone"}


def key_details(stage: Stage) -> list[str]:
    step = stage.rows("operator", "select * from outbox.audit_keys(null, 9)")[0]
    return [item["detail"] for item in step["findings"]]


# -- Retention --------------------------------------------------------------------------------------------------------

WALKS = {
    "redact_settled": ("redacted", "select * from outbox.redact_settled(30, %s, %s)"),
    "delete_history": ("deleted", "select * from outbox.delete_history(90, 0, %s, %s)"),
}


def ready(stage: Stage, function: str) -> list[UUID]:
    """Four settled actions that are old enough, lying newest first."""
    actions = []
    for number in range(4):
        actions.append(stage.attempt("refused", evidence=DOUBT))
        if function == "delete_history":
            stage.advance(40 * DAY + number)
            assert redact(stage) == 1
            stage.advance(0)
    for action in reversed(actions):
        lay_last(stage, "outbound_actions", f"action_id = '{action}'")
    stage.advance(400 * DAY)
    return actions


def gone(stage: Stage, function: str, action: UUID) -> bool:
    facts: Row = stage.facts(action)
    return facts["redacted_at" if function == "redact_settled" else "history_deleted_at"] is not None


@pytest.mark.parametrize("function", WALKS)
def test_a_walk_takes_the_oldest_and_no_more_than_it_looked_at(stage: Stage, function: str) -> None:
    count, call = WALKS[function]
    actions = ready(stage, function)
    use_no_index(stage, "reconciler")
    step = stage.rows("reconciler", call, None, 2)[0]
    assert step[count] == 2
    assert [gone(stage, function, action) for action in actions] == [True, True, False, False]
    kept = [bool(evidence(stage, action)) for action in actions]
    assert kept == ([True] * 4 if function == "redact_settled" else [False, False, True, True])
    after = stage.rows("reconciler", call, step["looked_until"], 1)[0]
    assert after[count] == 1
    assert [gone(stage, function, action) for action in actions] == [True, True, True, False]
    last = stage.rows("reconciler", call, "2999-01-01", 2)[0]
    assert (last[count], last["looked_until"]) == (0, None), "nothing is behind that"
    assert stage.rows("reconciler", call, None, 9)[0] == {count: 1, "looked_until": None}


@pytest.mark.parametrize("function", WALKS)
def test_a_walk_passes_what_somebody_holds_or_must_look_at(stage: Stage, function: str) -> None:
    count, call = WALKS[function]
    held, in_review, closed, free = ready(stage, function)
    for action in (in_review, closed):
        stage.one("select outbox.open_review(%s, 'x', 'x', 'x', 'x', 1000)", action)
    stage.decide(stage.review_of(closed), "noted")
    with stage.owner.transaction():
        stage.rows("owner", "select 1 from outbox.outbound_actions where action_id = %s for update", held)
        stage.as_("reconciler").execute("set lock_timeout = '1s'")
        assert stage.rows("reconciler", call, None, 9)[0][count] == 2
    assert [gone(stage, function, action) for action in (held, in_review, closed, free)] == [False, False, True, True]


def test_history_stays_some_days_after_its_payload_went(stage: Stage) -> None:
    stage.attempt("refused")
    stage.advance(100 * DAY)
    assert redact(stage) == 1
    stage.advance(110 * DAY)
    assert forget(stage, 90, 60) == 0
    stage.advance(161 * DAY)
    assert forget(stage, 90, 60) == 1
