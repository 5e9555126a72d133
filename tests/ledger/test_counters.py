"""Counters are separate and add up: created is the sum of all states, at every instant (P9)."""

from __future__ import annotations

import threading
from collections import Counter

from tests.ledger.crowd import Crowd
from tests.ledger.factories import Stage

COUNTERS = "select outbox.action_counters()"


def sums(stage: Stage) -> tuple[int, int]:
    counters = stage.one(COUNTERS, role="operator")
    return sum(item["total"] for item in counters["created"]), sum(item["total"] for item in counters["states"])


def test_created_is_the_sum_of_all_states_at_every_instant(stage: Stage) -> None:
    stage.declare({}, {"account": "other"})
    crowd = Crowd(stage, seed=11)
    running = threading.Thread(target=lambda: crowd.run(sessions=3, steps=80))
    running.start()
    read = 0
    while running.is_alive():
        created, in_states = sums(stage)
        assert created == in_states
        read += 1
    running.join()
    assert read > 5
    assert crowd.unexpected == []
    assert sums(stage) == (len(crowd.known), len(crowd.known))


def test_what_was_rolled_back_or_repeated_is_not_counted(stage: Stage) -> None:
    stage.insert("k")
    with stage.as_("agent").transaction(force_rollback=True):
        stage.insert("rolled-back")
    for _ in range(3):
        stage.rows(
            "agent", "select outbox.enqueue('mail', 'send', 'k', '{\"to\": \"a@example.com\", \"text\": \"hello\"}')"
        )
    assert sums(stage) == (1, 1)


def test_rolling_up_changes_no_sum_and_leaves_no_probe(stage: Stage) -> None:
    for _ in range(7):
        stage.insert()
        stage.one("select outbox.probe_write()::text", role="relay")
    rolled = [stage.one("select outbox.roll_up_counters(5)", role="reconciler") for _ in range(4)]
    assert sum(rolled) == 14
    assert sums(stage) == (7, 7)
    assert stage.one("select count(*) from outbox.counter_deltas") == 0
    assert stage.rows("owner", "select name, total from outbox.counters") == [{"name": "created", "total": 7}]


def test_two_roll_ups_do_not_wait_for_each_other(stage: Stage) -> None:
    stage.insert()
    with stage.as_("reconciler").transaction():
        assert stage.one("select outbox.roll_up_counters()", role="reconciler") == 1
        assert Stage(stage.ledger).one("select outbox.roll_up_counters()", role="reconciler") == 0
        stage.insert()
    assert sums(stage) == (2, 2)


def test_states_are_counted_per_account_and_reviews_per_owner(stage: Stage) -> None:
    stage.declare({}, {"account": "other"})
    stage.attempt("accepted", provider_id="1")
    stage.attempt("held")
    stage.insert(account="other")
    counters = stage.one(COUNTERS, role="reconciler")
    states = Counter({(s["account"], s["execution_state"]): s["total"] for s in counters["states"]})
    assert states == {("default", "dispatch_finished"): 1, ("default", "on_hold"): 1, ("other", "action_created"): 1}
    assert [(r["owner"], r["total"]) for r in counters["awaiting_review"]] == [("mail-oncall", 1)]


def test_the_backlog_tells_what_waits_and_for_how_long(stage: Stage) -> None:
    stage.attempt("response_lost")
    stage.attempt("held")
    stage.started()
    stage.insert(not_before="2999-01-01")
    stage.insert()
    stage.advance(100)
    backlog = stage.rows("operator", "select * from outbox.backlog()")[0]
    counted = {name: backlog[name] for name in ("due", "scheduled", "claimed", "on_hold", "unknown")}
    assert counted == {"due": 1, "scheduled": 1, "claimed": 1, "on_hold": 1, "unknown": 1}
    assert 100 <= backlog["oldest_due_age_s"] < 200
    assert 100 <= backlog["oldest_unknown_age_s"] < 200
