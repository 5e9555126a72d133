"""When there is something to do next, and what a claim takes: each reason to wait, alone, in an account of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.ledger.arranging import falling_ids, lay_last, use_no_index, waits
from tests.ledger.factories import Stage, in_one_hour
from tests.ledger.test_reconciliation_functions import NEXT, postpone

DUE_IN = "select outbox.next_dispatch_in(%s)"


def due_in(stage: Stage, account: str = "default", provider: str = "mail") -> float | None:
    found: float | None = stage.one(DUE_IN, json.dumps([{"provider": provider, "account": account}]), role="relay")
    return found


def settled_head(stage: Stage, event: str) -> UUID:
    """The head of an ordering key after this outcome, and a follower."""
    action, token = stage.started(ordering_key="o")
    stage.insert(ordering_key="o")
    assert stage.report(action, token, event, retry_in_ms=3_600_000) == "applied"
    return action


# -- The relay --------------------------------------------------------------------------------------------------------


def nothing(stage: Stage) -> None:
    stage.declare({}, {"account": "other"}, {"provider": "other"})
    stage.insert(account="other")
    stage.insert(provider="other")


def unknown(stage: Stage) -> None:
    stage.attempt("response_lost")


def claimed(stage: Stage) -> None:
    stage.started()


def with_evidence(stage: Stage) -> None:
    stage.late_acceptance(stage.insert())


def past_its_deadline(stage: Stage) -> None:
    stage.insert(deliver_by=in_one_hour(stage))
    stage.advance(3601)


def behind_an_unknown(stage: Stage) -> None:
    settled_head(stage, "response_lost")


def behind_what_is_under_way(stage: Stage) -> None:
    stage.declare({"unordered_after_unknown": True})
    stage.started(ordering_key="o")
    stage.insert(ordering_key="o")


def with_time_left(stage: Stage) -> None:
    stage.insert(deliver_by=in_one_hour(stage))


def head(stage: Stage) -> None:
    stage.insert(ordering_key="o")


def ordered_elsewhere(stage: Stage) -> None:
    stage.declare({}, {"account": "other"}, {"provider": "other"})
    for other in ({"account": "other"}, {"provider": "other"}, {"ordering_key": "p"}):
        stage.insert(**({"ordering_key": "o"} | other))
    stage.claim()
    stage.insert(ordering_key="o")


def passing_an_unknown(stage: Stage) -> None:
    stage.declare({"unordered_after_unknown": True})
    settled_head(stage, "response_lost")


def passing_what_is_due_later(stage: Stage) -> None:
    stage.declare({"unordered_after_unknown": True})
    settled_head(stage, "no_effect")


WAITING: tuple[tuple[Callable[[Stage], None], float | None], ...] = (
    (nothing, None),
    (unknown, None),
    (claimed, None),
    (with_evidence, None),
    (past_its_deadline, None),
    (behind_an_unknown, None),
    (behind_what_is_under_way, None),
    (with_time_left, 0),
    (head, 0),
    (ordered_elsewhere, 0),
    (passing_an_unknown, 0),
    (passing_what_is_due_later, 0),
)


@pytest.mark.parametrize(("arrange", "expected"), WAITING, ids=[arrange.__name__ for arrange, _ in WAITING])
def test_what_is_due_next_is_what_a_claim_would_take(
    stage: Stage, arrange: Callable[[Stage], None], expected: float | None
) -> None:
    arrange(stage)
    assert due_in(stage) == expected
    assert bool(stage.claim()["ids"]) == (expected == 0)


def test_the_next_is_the_earliest(stage: Stage) -> None:
    stage.insert(not_before="2999-01-01")
    stage.insert(not_before=in_one_hour(stage))
    use_no_index(stage, "relay")
    assert 3500 < (due_in(stage) or 0) <= 3600


def test_a_claim_takes_the_earliest_first_and_no_more_than_it_may(stage: Stage) -> None:
    later, sooner = stage.insert(not_before="2002-01-01"), stage.insert(not_before="2001-01-01")
    use_no_index(stage, "relay")
    assert stage.claim(0)["ids"] == []
    assert stage.claim(-1)["ids"] == []
    assert stage.claim(1)["ids"] == [sooner]
    assert stage.claim(1)["ids"] == [later]


# -- The reconciler ---------------------------------------------------------------------------------------------------


def test_the_reconciler_is_told_the_earliest_of_what_it_may_take(stage: Stage) -> None:
    def next_in() -> float | None:
        found: float | None = stage.one(NEXT, role="reconciler")
        return found

    use_no_index(stage, "reconciler")
    stage.attempt("held")
    stage.insert()
    assert next_in() is None, "a dispatch and a hold are not the reconciler's"
    first, second, third = (stage.attempt("response_lost") for _ in range(3))
    token = stage.look()["token"]
    assert next_in() is None, "all is claimed"
    stage.ask(third, token=token)
    assert next_in() is None, "what waits for a person is never due"
    assert postpone(stage, first, token, delay_ms=7_200_000) == "applied"
    assert postpone(stage, second, token, delay_ms=60_000) == "applied"
    lay_last(stage, "work_queue", f"action_id = '{second}'")
    assert 50 < (next_in() or 0) <= 60
    waiting = stage.attempt("no_effect", retry_in_ms=60_000)
    stage.late_acceptance(waiting)
    assert next_in() == 0, "evidence waits, whatever it is of"
    assert stage.look(1)["ids"] == [waiting]
    assert 50 < (next_in() or 0) <= 60, "and now somebody has it"


def test_a_reconciler_takes_evidence_first_then_the_oldest_unknown_and_no_more_than_asked(stage: Stage) -> None:
    ids = falling_ids(stage, 6)
    token = stage.claim()["token"]
    outcomes = {ids[0]: "held", ids[1]: "no_effect", ids[4]: "no_effect"}
    for number, action in enumerate(reversed(ids)):
        stage.advance(-number)
        assert stage.report(action, token, outcomes.get(action, "response_lost"), retry_in_ms=0) == "applied"
    stage.advance(0)
    waiting = [ids[1], ids[4], ids[5]]
    for action in reversed(waiting):
        stage.late_acceptance(action)
    use_no_index(stage, "reconciler")
    one = stage.look(1)
    assert one["ids"] == [ids[1]]
    assert [row["action_id"] for row in claimed_under(stage, one["token"])] == [ids[1]]
    assert stage.look(3)["ids"] == [ids[2], ids[4], ids[5]], "the oldest unknown, and told in order"
    assert stage.look(3)["ids"] == [ids[3]]
    assert stage.look(3)["ids"] == []


def claimed_under(stage: Stage, token: UUID) -> list[dict]:
    return stage.rows("owner", "select action_id from outbox.work_queue where claim_token = %s", token)


def test_a_reconciler_does_not_look_before_it_is_time(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    assert postpone(stage, action, stage.look()["token"], delay_ms=60_000) == "applied"
    stage.insert()
    assert stage.look()["ids"] == []


@pytest.mark.parametrize("evidence", [False, True])
def test_two_reconcilers_pass_what_the_other_takes(stage: Stage, evidence: bool) -> None:
    action = stage.attempt("response_lost")
    if evidence:
        stage.late_acceptance(action)
    with stage.as_("reconciler").transaction():
        assert stage.look()["ids"] == [action]
        other = Stage(stage.ledger)
        other.as_("reconciler").execute("set lock_timeout = '1s'")
        assert other.look()["ids"] == []


# -- Sweeps -----------------------------------------------------------------------------------------------------------

SWEEPS = {
    "deadlines": ("reconciler", "select outbox.sweep_deadlines(%s)"),
    "expired claims": ("relay", "select outbox.sweep_expired_claims(%s, 'relay')"),
}


def due_for(stage: Stage, sweep: str) -> list[UUID]:
    """Three actions for this sweep, in order of their ids, lying the other way round."""
    ids = falling_ids(stage, 3, **({"deliver_by": in_one_hour(stage)} if sweep == "deadlines" else {}))
    if sweep == "deadlines":
        stage.advance(3601)
    else:
        assert set(stage.claim(lease_ms=0)["ids"]) == set(ids)
    return ids


@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_goes_in_order_and_no_further_than_asked(stage: Stage, sweep: str) -> None:
    role, call = SWEEPS[sweep]
    ids = due_for(stage, sweep)
    before = {action: stage.state(action) for action in ids}
    use_no_index(stage, role)
    assert stage.one(call, 1, role=role) == 1
    assert [stage.state(action) == before[action] for action in ids] == [False, True, True]
    assert stage.one(call, 9, role=role) == 2


@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_passes_what_somebody_holds_and_holds_what_it_takes(stage: Stage, sweep: str) -> None:
    role, call = SWEEPS[sweep]
    ids = due_for(stage, sweep)
    with stage.owner.transaction():
        stage.rows("owner", "select 1 from outbox.work_queue where action_id = %s for update", ids[0])
        stage.as_(role).execute("set lock_timeout = '1s'")
        assert stage.one(call, 9, role=role) == 2
    assert stage.one(call, 9, role=role) == 1


def test_a_look_that_ran_out_leaves_its_token_nowhere(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    token = stage.look(lease_ms=0)["token"]
    assert stage.one(SWEEPS["expired claims"][1], 9, role="relay") == 0
    assert claimed_under(stage, token) == []
    assert (stage.queued(action) or {})["kind"] == "unknown"


def test_the_evidence_of_a_sweep_is_of_the_attempt_that_ran_out(stage: Stage) -> None:
    stage.attempt("accepted", provider_id="1")
    action = stage.attempt("no_effect", retry_in_ms=0)
    stage.claim(lease_ms=0)
    assert stage.sweep() == 1
    kept = stage.rows("owner", "select action_id, attempt from outbox.evidence where reason = 'claim_expired'")
    assert kept == [{"action_id": action, "attempt": 2}]


def test_a_batch_locks_its_own_queue_rows(stage: Stage) -> None:
    low, middle, high = falling_ids(stage, 3)
    row = "select 1 from outbox.work_queue where action_id = %s for update nowait"
    batch = json.dumps([{"action_id": str(high)}, {"action_id": str(low)}])
    with stage.owner.transaction():
        stage.rows("owner", "select outbox.lock_queue(%s)::text", batch)
        assert [waits(stage, "owner", row, action) for action in (low, middle, high)] == [True, False, True]
