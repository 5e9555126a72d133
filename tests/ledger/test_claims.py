"""Who may send what, and when: claims, ordering keys, priorities, due times, keys on the wire."""

from __future__ import annotations

import json
import threading
from uuid import UUID, uuid4

import pytest

from tests.ledger.factories import Stage, in_one_hour


def test_two_claimers_over_many_rows_claim_each_once(stage: Stage) -> None:
    statement = (
        "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
        " select 'mail', 'send', 'k' || n, '{\"to\": \"a@example.com\"}' from generate_series(1, 2000) n"
    )
    stage.rows("agent", statement)
    got: dict[int, list[UUID]] = {0: [], 1: []}
    start = threading.Barrier(2)

    def work(number: int) -> None:
        claimer = Stage(stage.ledger)
        claimer.one("select 1", role="relay")
        start.wait()
        while ids := claimer.claim(50)["ids"]:
            got[number] += ids

    threads = [threading.Thread(target=work, args=(number,)) for number in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got[0]) + len(got[1]) == 2000 == len(set(got[0]) | set(got[1]))
    assert stage.one("select count(*) from outbox.outbound_actions where attempt_count = 1") == 2000


def test_a_claim_in_progress_is_passed_not_waited_for(stage: Stage) -> None:
    first = stage.insert()
    relay = stage.as_("relay")
    with relay.transaction():
        assert stage.claim()["ids"] == [first]
        second = stage.insert()
        other = Stage(stage.ledger)
        assert other.claim()["ids"] == [second]


def test_no_more_is_claimed_than_there_are_slots_and_the_same_demand_twice_is_one(stage: Stage) -> None:
    for _ in range(5):
        stage.insert()
    assert len(stage.claim(3)["ids"]) == 3
    demand = json.dumps([{"provider": "mail", "account": "default", "slots": 9}] * 2)
    claimed = stage.rows("relay", "select * from outbox.claim_actions(%s, %s, 1000, 1000, 'x')", demand, uuid4())
    assert len(claimed) == 2
    assert stage.claim()["ids"] == []


def test_urgent_actions_go_first_and_the_oldest_of_them(stage: Stage) -> None:
    order = [stage.insert(priority=priority) for priority in (2, 1, 0, 1, 0)]
    expected = [order[2], order[4], order[1], order[3], order[0]]
    assert [stage.claim(1)["ids"][0] for _ in order] == expected


def test_an_action_waits_for_not_before(stage: Stage) -> None:
    action = stage.insert(not_before=in_one_hour(stage))
    assert stage.claim()["ids"] == []
    stage.advance(3601)
    assert stage.claim()["ids"] == [action]


def test_an_action_past_its_deadline_is_never_claimed(stage: Stage) -> None:
    stage.insert(deliver_by=in_one_hour(stage))
    stage.advance(3601)
    assert stage.claim()["ids"] == []
    assert stage.one('select outbox.next_dispatch_in(\'[{"provider": "mail", "account": "default"}]\')') is None


# -- Ordering keys ----------------------------------------------------------------------------------------------------


def test_the_head_of_an_ordering_key_goes_first_alone(stage: Stage) -> None:
    head, follower = stage.insert(ordering_key="order-1"), stage.insert(ordering_key="order-1")
    apart = stage.insert(ordering_key="order-2")
    claimed = stage.claim()
    assert set(claimed["ids"]) == {head, apart}
    assert stage.claim()["ids"] == [], "the head is being sent"
    stage.report(head, claimed["token"], "accepted", provider_id="1")
    assert stage.claim()["ids"] == [follower]


def test_two_claimers_cannot_break_an_ordering_key(stage: Stage) -> None:
    head = stage.insert(ordering_key="order-1")
    stage.insert(ordering_key="order-1")
    with stage.as_("relay").transaction():
        assert stage.claim()["ids"] == [head]
        assert Stage(stage.ledger).claim()["ids"] == [], "the other claimer must not take the follower of a locked head"


HEADS = {"unknown": "response_lost", "on hold": "held", "backing off": "no_effect"}


def blocked_behind(stage: Stage, head: str) -> UUID:
    """A follower whose head cannot go now."""
    if head == "not before":
        stage.insert(ordering_key="order-1", not_before=in_one_hour(stage))
        return stage.insert(ordering_key="order-1")
    action, token = stage.started(ordering_key="order-1")
    follower = stage.insert(ordering_key="order-1")
    assert stage.report(action, token, HEADS[head], retry_in_ms=3_600_000) == "applied"
    return follower


@pytest.mark.parametrize("head", [*HEADS, "not before"])
def test_a_head_that_cannot_go_blocks_its_followers(stage: Stage, head: str) -> None:
    blocked_behind(stage, head)
    assert stage.claim()["ids"] == []


@pytest.mark.parametrize("head", [*HEADS, "not before"])
def test_a_head_that_cannot_go_is_passed_where_the_account_says_so(stage: Stage, head: str) -> None:
    stage.declare({"unordered_after_unknown": True})
    assert stage.claim()["ids"] == []
    follower = blocked_behind(stage, head)
    assert stage.claim()["ids"] == [follower]


def test_a_head_that_can_go_is_never_passed(stage: Stage) -> None:
    stage.declare({"unordered_after_unknown": True})
    head, _ = stage.insert(ordering_key="order-1"), stage.insert(ordering_key="order-1")
    assert stage.claim()["ids"] == [head]
    assert stage.claim()["ids"] == [], "the head is being sent"


def test_a_blocked_follower_is_not_announced_as_due(stage: Stage) -> None:
    """A relay that is told so would poll at once, for ever, and get nothing."""
    due_in = 'select outbox.next_dispatch_in(\'[{"provider": "mail", "account": "default"}]\')'
    assert stage.one(due_in, role="relay") is None
    blocked_behind(stage, "unknown")
    assert stage.one(due_in, role="relay") is None
    stage.insert(not_before=in_one_hour(stage))
    assert 3500 < stage.one(due_in, role="relay") <= 3600
    stage.insert()
    assert stage.one(due_in, role="relay") == 0


# -- What a claim fixes -----------------------------------------------------------------------------------------------


def test_the_agents_key_goes_out_as_it_is_where_it_fits(stage: Stage) -> None:
    stage.insert("shop:order:1:mail:1")
    assert stage.claim()["rows"][0]["wire_key"] == "shop:order:1:mail:1"


@pytest.mark.parametrize(
    ("key", "change"),
    [("k" * 65, {}), ("with/slash", {}), ("fits", {"key_shared": True}), ("a:b", {"key_pattern": "[a-z]+"})],
)
def test_a_key_that_does_not_fit_is_replaced_by_a_short_one_that_stays(stage: Stage, key: str, change: dict) -> None:
    stage.declare(change)
    action = stage.insert(key)
    claimed = stage.claim()
    wire_key = claimed["rows"][0]["wire_key"]
    assert len(wire_key) == 22
    assert wire_key.isalnum()
    assert wire_key == stage.one("select outbox.derived_wire_key(%s)", key)
    stage.report(action, claimed["token"], "no_effect", retry_in_ms=0)
    stage.declare({"key_max_length": 255, "key_pattern": ".*", "contract_version": "2+def"})
    again = stage.claim()["rows"][0]
    assert (again["wire_key"], again["contract_version"]) == (wire_key, "1+abc"), "fixed by the first claim"


def test_different_keys_give_different_short_ones(stage: Stage) -> None:
    keys = "select count(distinct outbox.derived_wire_key('key ' || n)) from generate_series(1, 500) n"
    assert stage.one(keys) == 500


def test_the_payload_arrives_byte_for_byte_as_the_ledger_holds_it(stage: Stage) -> None:
    text = '{"to":"a@example.com","big":9007199254740993,"frac":0.10,"exp":1e2,"u":"\\u00e9\\ud83d\\ude00","e":{}}'
    stage.insert(payload=text)
    sent = stage.claim()["rows"][0]["payload"]
    assert sent == stage.one("select payload::text from outbox.outbound_actions")
    assert '"big": 9007199254740993' in sent
    assert '"frac": 0.10' in sent
    assert '"u": "é😀"' in sent
