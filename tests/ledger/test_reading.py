"""What an agent reads of its own actions: status, advice, when to look again, changes, and what a cancel did."""

from __future__ import annotations

import threading
from uuid import UUID

import psycopg
import pytest

from outbox_relay.states import STATES, DeliveryState, ExecutionState, State
from tests.ledger.factories import Row, Stage, put_into
from tests.ledger.test_insert import waits_for_a_lock

ADVICE = {
    ("action_created", "delivery_pending"): "wait",
    ("dispatch_started", "delivery_pending"): "wait",
    ("retry_scheduled", "delivery_pending"): "wait",
    ("on_hold", "delivery_pending"): "in_review",
    ("dispatch_finished", "delivery_confirmed"): "accepted",
    ("dispatch_finished", "delivery_rejected"): "refused",
    ("dispatch_finished", "delivery_unknown"): "unknown_do_not_resend",
    ("dispatch_finished", "reconciled_confirmed"): "accepted",
    ("dispatch_finished", "reconciled_failed"): "not_sent",
    ("dispatch_finished", "abandoned"): "closed_unproven_do_not_resend",
    ("cancelled", "not_sent"): "not_sent",
    ("expired", "not_sent"): "not_sent",
}
CHANGES = "select * from outbox.changes(%s, %s)"


def status(stage: Stage, action: UUID) -> Row:
    found = "select s.*, clock_timestamp() as read_at from outbox.action_status s where action_id = %s"
    return stage.rows("agent", found, action)[0]


@pytest.mark.parametrize("state", STATES, ids=str)
def test_every_state_has_its_advice_and_a_time_to_look_again(stage: Stage, state: State) -> None:
    action = put_into(stage, state)
    seen = status(stage, action)
    assert (seen["execution_state"], seen["delivery_state"]) == state
    assert seen["advice"] == ADVICE[state]
    if stage.queued(action):
        assert seen["check_again_at"] > seen["read_at"]
    else:
        assert seen["check_again_at"] is None, "nothing changes by itself any more"


def test_an_unknown_in_review_says_so_and_when_it_is_due(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    stage.ask(action, due_in_ms=3_600_000)
    seen = status(stage, action)
    assert seen["advice"] == "in_review"
    assert seen["check_again_at"] == stage.one("select due_at from outbox.reviews")


def test_status_shows_nothing_of_the_payload(stage: Stage) -> None:
    assert not {"payload", "recipient", "wire_key"} & set(status(stage, stage.insert()))


# -- Changes ----------------------------------------------------------------------------------------------------------


def read_all(stage: Stage, cursor: str = "", limit: int = 3) -> tuple[list[Row], str]:
    """Read pages until one is empty."""
    found: list[Row] = []
    while page := stage.rows("agent", CHANGES, cursor, limit):
        found += page
        cursor = page[-1]["cursor"]
    return found, cursor


def test_changes_come_once_each_in_pages(stage: Stage) -> None:
    actions = [stage.attempt("accepted", provider_id=str(number)) for number in range(4)]
    found, cursor = read_all(stage)
    assert {(row["action_id"], row["sequence"]) for row in found} == {(a, n) for a in actions for n in (1, 2, 3)}
    assert len(found) == 12
    assert stage.rows("agent", CHANGES, cursor, 10) == []
    stage.insert()
    assert len(read_all(stage, cursor)[0]) == 1


def test_a_late_commit_is_not_passed_over(stage: Stage) -> None:
    """The transaction began first and commits last; meanwhile a reader went on."""
    slow = Stage(stage.ledger)
    with slow.as_("agent").transaction():
        late = slow.insert("late")
        on_time = stage.insert("on-time")
        before, cursor = read_all(stage)
        assert before == [], "nothing younger than an open transaction is shown yet"
    after, cursor = read_all(stage, cursor)
    assert {row["action_id"] for row in after} == {late, on_time}


def test_a_rolled_back_change_holds_up_nobody(stage: Stage) -> None:
    with stage.as_("agent").transaction(force_rollback=True):
        stage.insert("never")
    action = stage.insert("k")
    assert [row["action_id"] for row in read_all(stage)[0]] == [action]


def test_no_change_is_lost_to_many_writers(stage: Stage) -> None:
    stop = threading.Event()
    written: list[UUID] = []

    def write() -> None:
        writer = Stage(stage.ledger)
        for _ in range(15):
            with writer.as_("agent").transaction():
                written.extend([writer.insert(), writer.insert()])

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen: list[Row] = []
    cursor = ""
    while any(thread.is_alive() for thread in threads) or not stop.is_set():
        if not any(thread.is_alive() for thread in threads):
            stop.set()
        page, cursor = read_all(stage, cursor)
        seen += page
    keys = [(row["action_id"], row["sequence"]) for row in seen]
    assert len(keys) == len(set(keys))
    assert {action for action, _ in keys} == set(written)
    assert len(written) == 120


@pytest.mark.parametrize(
    "cursor", ["x", "1/2/3", "1/2", "'; drop", "9" * 30 + "/00000000-0000-0000-0000-000000000000/1"]
)
def test_a_cursor_that_is_none_is_refused_with_a_hint(stage: Stage, cursor: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        stage.rows("agent", CHANGES, cursor, 1)
    assert (refused.value.sqlstate, bool(refused.value.diag.message_hint)) == ("OB010", True)


# -- Cancel -----------------------------------------------------------------------------------------------------------


def test_a_cancel_that_comes_first_wins_against_the_claim(stage: Stage) -> None:
    action = stage.insert("k")
    with stage.as_("agent").transaction():
        assert stage.cancel(action) == "cancelled"
        assert stage.claim()["ids"] == [], "a claim passes what a cancel holds"
    assert stage.claim()["ids"] == []
    assert stage.state(action) == State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)


def test_a_cancel_that_comes_second_waits_loses_and_says_so(stage: Stage) -> None:
    action = stage.insert("k")
    outcome: list[str] = []
    agent = Stage(stage.ledger)
    pid = agent.as_("agent").info.backend_pid
    with stage.as_("relay").transaction():
        assert stage.claim()["ids"] == [action]
        thread = threading.Thread(target=lambda: outcome.append(agent.cancel(action)))
        thread.start()
        waits_for_a_lock(stage, pid)
    thread.join(20)
    assert outcome == ["cancel_requested"]
    assert stage.state(action).execution is ExecutionState.DISPATCH_STARTED


@pytest.mark.parametrize("event", ["no_effect", "held", "released"])
def test_a_cancel_is_honoured_as_soon_as_nothing_was_sent(stage: Stage, event: str) -> None:
    action, token = stage.started()
    assert stage.cancel(action) == "cancel_requested"
    assert stage.report(action, token, event, retry_in_ms=0) == "applied"
    assert stage.state(action) == State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)
    assert stage.review_of(action) is None


def test_a_cancel_asked_for_twice_is_told_once(stage: Stage) -> None:
    action, _ = stage.started()
    assert [stage.cancel(action), stage.cancel(action)] == ["cancel_requested"] * 2
    assert stage.one("select count(*) from outbox.action_events where type like '%cancel_requested%'") == 1


def test_a_key_that_does_not_exist_cannot_be_cancelled(stage: Stage) -> None:
    assert stage.refusal("agent", "select * from outbox.cancel('nothing')") == "OB009"
