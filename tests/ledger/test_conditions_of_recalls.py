"""What a reconciler takes first, and what a worker is told of what it holds: its own, still held, with its evidence."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest

from tests.ledger.arranging import falling_ids, lay_last, use_no_index
from tests.ledger.factories import PAYLOAD, Row, Stage, in_one_hour
from tests.ledger.test_conditions_of_reading import DOUBT


@pytest.mark.parametrize("role", ["relay", "reconciler"])
def test_a_recall_is_of_what_is_held_under_its_token_in_order(stage: Stage, role: str) -> None:
    ids = falling_ids(stage, 3)
    late = stage.insert()
    token, looked, other = uuid4(), uuid4(), uuid4()
    claim = stage.claim(3, token=token) if role == "relay" else stage.claim()
    if role == "relay":
        stage.claim(token=other)
        recall, kept = "select action_id from outbox.recall_claims(%s)", token
    else:
        for action in claim["ids"]:
            stage.report(action, claim["token"], "response_lost")
        stage.look(3, token=looked)
        stage.look(token=other)
        recall = "select (u->'claim'->>'action_id')::uuid as action_id from outbox.recall_unknowns(%s) u"
        kept = looked
    for table, action in [(table, action) for table in ("work_queue", "outbound_actions") for action in reversed(ids)]:
        lay_last(stage, table, f"action_id = '{action}'")
    use_no_index(stage, role)
    assert [row["action_id"] for row in stage.rows(role, recall, kept)] == ids
    assert [row["action_id"] for row in stage.rows(role, recall, other)] == [late]
    stage.advance(61)
    assert stage.rows(role, recall, kept) == []


def test_a_relay_recalls_no_look_of_a_reconciler(stage: Stage) -> None:
    stage.attempt("response_lost")
    looked = stage.look()
    assert stage.rows("relay", "select * from outbox.recall_claims(%s)", looked["token"]) == []


def test_a_recalled_claim_is_in_the_mode_of_its_account_and_of_its_release(stage: Stage) -> None:
    modes = "select action_id, mode from outbox.recall_claims(%s)"
    stage.declare({"mode": "hold"}, {"account": "another", "mode": "live"}, {"operation": "emit", "mode": "live"})
    held = stage.attempt("held")
    stage.decide(stage.review_of(held), "release")
    fresh, emitted = stage.insert(), stage.insert(operation="emit")
    claimed = stage.claim()
    told = {row["action_id"]: row["mode"] for row in stage.rows("relay", modes, claimed["token"])}
    assert told == {held: "live", fresh: "hold", emitted: "live"}
    stage.declare({"mode": "shadow"}, {"provider": "early", "mode": "live"}, {"operation": "emit", "mode": "live"})
    rows = stage.rows("relay", modes, claimed["token"])
    assert sorted((row["action_id"], row["mode"]) for row in rows) == sorted(
        [(held, "shadow"), (fresh, "shadow"), (emitted, "live")]
    )


def test_a_case_holds_its_own_evidence_and_review_and_nobody_elses(stage: Stage) -> None:
    stage.declare({}, {"provider": "early", "mode": "hold"}, {"account": "another", "mode": "hold"})
    stage.declare({"mode": "shadow"}, {"operation": "emit", "mode": "hold"})
    other, action = (stage.attempt("response_lost", evidence=DOUBT) for _ in range(2))
    token = stage.look()["token"]
    stage.ask(other, token=token, look_again_in_ms=0)
    stage.ask(action, token=token, look_again_in_ms=0)
    stage.rows("owner", "select outbox.close_review(%s, 'noted', 'x', 'x')::text", action)
    stage.late_acceptance(other, "of-other")
    for provider_id in ("used", "first", "second"):
        stage.late_acceptance(action, provider_id)
    stage.rows("owner", "update outbox.evidence set used_at = now() where provider_id = 'used'")
    lay_last(stage, "evidence", "provider_id = 'first'")
    lay_last(stage, "providers", "(provider, account, operation) = ('mail', 'default', 'send')")
    use_no_index(stage, "reconciler")
    cases = {case["claim"]["action_id"]: case for case in stage.look()["cases"]}
    assert set(cases) == {str(other), str(action)}
    case = cases[str(action)]
    assert case["claim"]["mode"] == "shadow"
    assert case["review_open"] is False
    assert case["unused_acceptance"]["provider_id"] == "first"
    assert [item["provider_id"] for item in case["evidence"]] == [None, "used", "first", "second"]
    stage.rows("owner", "update outbox.evidence set used_at = now() where used_at is null and proves = 'acceptance'")
    case = stage.rows("owner", "select outbox.unknown_case(%s, %s, now()) as it", action, uuid4())
    assert [row["it"]["unused_acceptance"] for row in case] == [None]
    assert json.loads(case[0]["it"]["claim"]["payload"]) == PAYLOAD


# -- Of many unknowns -------------------------------------------------------------------------------------------------

WINDOWS: Row = {"mail": {"default": {"send": 86_400_000}}, "pager": {"default": {"send": 600_000}}}
LOOKED_AT = 16
"""Of so many unknowns, oldest due first, a claim of one chooses."""


def lost(stage: Stage, provider: str, **columns: object) -> UUID:
    action = stage.insert(None, provider=provider, **columns)
    assert stage.report(action, stage.claim(provider=provider)["token"], "response_lost") == "applied"
    return action


def test_windows_are_each_actions_own(stage: Stage) -> None:
    stage.declare({}, {"provider": "pager"}, {"provider": "chat"})
    hurried = lost(stage, "chat", deliver_by=in_one_hour(stage))
    waits, mail, pager = lost(stage, "chat"), lost(stage, "mail"), lost(stage, "pager")
    found = [stage.look(1, windows=WINDOWS)["ids"] for _ in range(5)]
    assert found == [[pager], [mail], [hurried], [waits], []], "minutes, a day, none, and a deadline makes no window"


def test_a_window_that_is_over_is_none(stage: Stage) -> None:
    stage.declare({}, {"provider": "pager"}, {"provider": "chat"})
    actions = [lost(stage, provider) for provider in ("chat", "pager", "mail")]
    stage.advance(3600)
    found = [stage.look(1, windows=WINDOWS)["ids"] for _ in range(3)]
    assert found == [[actions[2]], [actions[0]], [actions[1]]]


def test_an_unknown_is_found_behind_many_that_are_not_to_be_taken(stage: Stage) -> None:
    held = [stage.attempt("response_lost") for _ in range(LOOKED_AT + 1)]
    assert len(stage.look()["ids"]) == len(held)
    action, token = stage.started()
    for _ in held:
        stage.insert()
    stage.advance(10)
    assert stage.report(action, token, "response_lost") == "applied"
    stage.advance(20)
    assert stage.look(1)["ids"] == [action]


def test_the_oldest_of_many_is_taken_wherever_it_lies(stage: Stage) -> None:
    oldest, token = stage.started()
    for _ in range(LOOKED_AT + 1):
        stage.attempt("response_lost")
    stage.advance(-100)
    assert stage.report(oldest, token, "response_lost") == "applied"
    stage.advance(0)
    lay_last(stage, "work_queue", f"action_id = '{oldest}'")
    use_no_index(stage, "reconciler")
    assert stage.look(1)["ids"] == [oldest]


def test_a_late_acceptance_is_named_by_the_first_that_is_unused(stage: Stage) -> None:
    other, action = (stage.attempt("response_lost", evidence=DOUBT) for _ in range(2))
    for each, kinds in ((other, ["receipt"]), (action, ["lookup", "replay", "lookup"])):
        for kind in kinds:
            seen = {"kind": kind, "proves": "acceptance", "reason": "accepted"}
            assert stage.resolve(each, "found", token=uuid4(), provider_id=kind, evidence=seen) == "stale"
    first = "select min(evidence_id) from outbox.evidence where provider_id = 'lookup'"
    stage.rows("owner", f"update outbox.evidence set used_at = now() where evidence_id = ({first})")
    lay_last(stage, "evidence", "provider_id = 'replay'")
    use_no_index(stage, "owner")
    learned = "select outbox.learned_late(%s)"
    assert [stage.one(learned, each) for each in (action, other)] == ["replay", "receipt"]
    assert stage.one(learned, stage.insert()) == "response"
