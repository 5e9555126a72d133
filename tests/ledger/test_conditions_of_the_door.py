"""One condition at a time of what lets an action in, names what is refused, and declares what exists."""

from __future__ import annotations

import json

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.ledger.arranging import lay_last, use_no_index
from tests.ledger.factories import ACCOUNT, PAYLOAD, Row, Stage
from tests.ledger.test_audit import corrupt
from tests.ledger.test_conditions_of_reading import by_owner

ENQUEUE = "select * from outbox.enqueue('mail', 'send', %s, %s)"


def refused(stage: Stage, key: str, **columns: object) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as error:
        stage.insert(key, **columns)
    return error.value.diag


def detail(stage: Stage, key: str, **columns: object) -> Row:
    told: Row = json.loads(refused(stage, key, **columns).message_detail or "null")
    return told


@pytest.mark.parametrize(
    ("columns", "hint"),
    [
        ({"priority": 3}, "Use 0"),
        ({"traceparent": "x"}, "Send a W3C"),
        ({"recipient": "r" * 2001}, "Give at most 2000"),
        ({"tenant": "t" * 256}, "Give 1 to 255"),
    ],
)
def test_a_label_that_cannot_be_used_has_the_hint_of_its_kind(stage: Stage, columns: Row, hint: str) -> None:
    stage.declare({"recipient_paths": []})
    assert (refused(stage, "k", **columns).message_hint or "").startswith(hint)


def test_a_payload_may_have_many_lists_that_are_not_deep(stage: Stage) -> None:
    action = stage.insert(payload={"to": "a@example.com", "rows": [[] for _ in range(100)]})
    assert len(stage.facts(action)["payload"]["rows"]) == 100


def test_a_recipient_is_read_from_texts_numbers_and_lists_only(stage: Stage) -> None:
    read = "select outbox.expected_recipients(%s, %s)"
    paths = Jsonb([["to"], ["cc", "0"]])
    for payload, expected in (
        ({"to": "a"}, ["a"]),
        ({"to": 7}, ["7"]),
        ({"to": ["a", "b"]}, ["a, b"]),
        ({"to": {"name": "a"}}, []),
        ({"to": True}, []),
        ({"to": "a", "cc": ["b"]}, ["a", "b"]),
    ):
        assert stage.one(read, Jsonb(payload), paths) == expected, payload


def test_what_is_enqueued_again_is_told_of_itself(stage: Stage) -> None:
    others = [stage.attempt("response_lost") for _ in range(2)]
    stage.ask(others[0])
    first = stage.rows("agent", ENQUEUE, "k1", Jsonb(PAYLOAD))[0]
    second = stage.rows("agent", ENQUEUE, "k2", Jsonb(PAYLOAD))[0]
    assert first["created"]
    assert second["created"]
    assert first["action_id"] != second["action_id"]
    for row in (first, second):
        assert (row["execution_state"], row["delivery_state"], row["advice"]) == (
            "action_created", "delivery_pending", "wait",
        )  # fmt: skip
    stage.report(second["action_id"], stage.claim()["token"], "response_lost")
    again = stage.rows("agent", ENQUEUE, "k2", Jsonb(PAYLOAD))[0]
    assert again == second | {
        "created": False, "execution_state": "dispatch_finished", "delivery_state": "delivery_unknown",
        "advice": "unknown_do_not_resend",
    }  # fmt: skip
    review = stage.ask(second["action_id"])
    assert stage.rows("agent", ENQUEUE, "k2", Jsonb(PAYLOAD))[0]["advice"] == "in_review"
    stage.decide(review, "resend")
    assert stage.rows("agent", ENQUEUE, "k2", Jsonb(PAYLOAD))[0]["advice"] == "wait", "the review is closed"


def test_another_intent_is_told_of_its_own_action(stage: Stage) -> None:
    stage.declare({}, {"provider": "post"})
    other, action = stage.insert("other"), stage.insert("k")
    stage.report(other, stage.claim(1)["token"], "held")
    assert stage.insert_as("agent", intent("k")) == []
    told = detail(stage, "k", payload=PAYLOAD | {"text": "bye"})
    assert told == {
        "action_id": str(action), "execution_state": "action_created", "delivery_state": "delivery_pending",
        "advice": "wait", "differs": "payload",
    }  # fmt: skip
    for columns, differs in (
        ({"provider": "post"}, "provider"),
        ({"payload": {"to": "b@example.com", "text": "hello"}}, "recipient, payload"),
        ({"content_version": "2"}, "content_version"),
    ):
        assert detail(stage, "k", **columns)["differs"] == differs
    token = stage.claim()["token"]
    stage.report(action, token, "response_lost")
    assert detail(stage, "k", content_version="2")["advice"] == "unknown_do_not_resend"
    review = stage.ask(action)
    assert detail(stage, "k", content_version="2")["advice"] == "in_review"
    stage.decide(review, "resend")
    assert detail(stage, "k", content_version="2")["advice"] == "wait"


@pytest.mark.parametrize("part", ["operation", "account"])
def test_a_part_of_the_intent_that_differs_is_named(stage: Stage, part: str) -> None:
    stage.declare({}, {part: "other"})
    stage.insert("k")
    assert detail(stage, "k", **{part: "other"})["differs"] == part


def intent(key: str) -> Row:
    return {"provider": "mail", "operation": "send", "payload": PAYLOAD, "idempotency_key": key}


def test_the_same_number_written_otherwise_is_another_payload(stage: Stage) -> None:
    stage.insert("k", payload='{"to": "a@example.com", "n": 1.0}')
    assert detail(stage, "k", payload='{"to": "a@example.com", "n": 1.00}')["differs"] == "payload"


def test_only_its_creator_is_told_of_an_action_and_only_while_it_is_there(stage: Stage) -> None:
    by_owner(stage, "foreign")
    gone = stage.insert("gone")
    corrupt(stage, "delete from outbox.outbound_actions where action_id = %s", gone)
    for key in ("foreign", "gone"):
        found = refused(stage, key, content_version="2")
        assert (found.sqlstate, found.message_detail) == ("OB001", None), key


def test_what_is_declared_is_named_nearest_first_ten_at_most(stage: Stage) -> None:
    many = [{"provider": "a", "operation": f"o{number:02}"} for number in range(12)]
    stage.declare({"operation": "forgotten"})
    stage.declare(*many, {}, {"account": "other"})
    lay_last(stage, "providers", "provider = 'mail'")
    told = refused(stage, "k", operation="nothing").message_detail or ""
    names = told.removeprefix("Declared: ").removesuffix(".").split(", ")
    assert names == [*[f"a/default o{number:02}" for number in range(8)], "mail/default send", "mail/other send"]


def test_what_came_first_in_one_statement_goes_first(stage: Stage) -> None:
    columns = "provider, operation, idempotency_key, payload, ordering_key, created_at"
    row = "('mail', 'send', '{0}', '{{}}', 'o', now() - interval '{0} s')"
    rows = ", ".join(row.format(seconds) for seconds in (2, 3, 1))
    stage.rows("owner", f"insert into outbox.outbound_actions ({columns}) values {rows}")
    assert [row["idempotency_key"] for row in stage.claim()["rows"]] == ["3"]


# -- Declarations -----------------------------------------------------------------------------------------------------


def test_what_is_declared_again_is_changed_and_what_is_not_is_left(stage: Stage) -> None:
    stage.declare({"mode": "hold"}, {"account": "other"})
    stage.declare({"mode": "live"})
    before = stage.rows("owner", "select * from outbox.providers where account = 'other'")
    assert before[0]["declared"] is False
    stage.declare({"mode": "shadow"})
    assert stage.rows("owner", "select * from outbox.providers where account = 'other'") == before
    declared = stage.rows("relay", "select * from outbox.declared_accounts()")
    assert [{name: row[name] for name in ACCOUNT} for row in declared] == [ACCOUNT | {"mode": "shadow"}]


def test_what_is_declared_is_listed_in_order(stage: Stage) -> None:
    stage.declare(
        {"provider": "z"}, {"provider": "a", "account": "z"}, {"provider": "a"}, {"provider": "a", "operation": "a"}
    )
    use_no_index(stage, "relay")
    listed = stage.rows("relay", "select provider, account, operation from outbox.declared_accounts()")
    assert [tuple(row.values()) for row in listed] == [
        ("a", "default", "a"), ("a", "default", "send"), ("a", "z", "send"), ("z", "default", "send"),
    ]  # fmt: skip


def test_counts_are_rolled_up_oldest_first_and_only_those_taken(stage: Stage) -> None:
    stage.declare({}, {"account": "other"})
    for account in ("default", "other", "default"):
        stage.insert(account=account)
    lay_last(stage, "counter_deltas", "delta_id = (select min(delta_id) from outbox.counter_deltas)")
    use_no_index(stage, "reconciler")
    first = "select account, total from outbox.counters order by 1"
    assert stage.one("select outbox.roll_up_counters(1)", role="reconciler") == 1
    assert stage.rows("owner", first) == [{"account": "default", "total": 1}]
    assert stage.one("select count(*) from outbox.counter_deltas") == 2
    stage.one("select outbox.probe_write()::text", role="relay")
    assert stage.one("select outbox.roll_up_counters()", role="reconciler") == 3
    assert stage.rows("owner", first) == [{"account": "default", "total": 2}, {"account": "other", "total": 1}]
