"""Bad rows are refused at INSERT, in the agent's own transaction, with a code and a hint, and delay nobody."""

from __future__ import annotations

import psycopg
import pytest

from tests.ledger.factories import PAYLOAD, Stage

GOOD: dict[str, object] = {"provider": "mail", "operation": "send", "idempotency_key": "k1", "payload": PAYLOAD}
DEEP = '{"to": "x", "a": ' + "[" * 70 + "]" * 70 + "}"
VERY_DEEP = '{"a": ' + "[" * 30_000 + "]" * 30_000 + "}"


def refused(stage: Stage, **columns: object) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as error:
        stage.insert_as("agent", GOOD | columns)
    assert stage.one("select count(*) from outbox.keys") == 0
    return error.value.diag


@pytest.mark.parametrize("part", ["provider", "operation", "account"])
def test_an_unknown_name_is_refused_and_the_known_ones_are_named(stage: Stage, part: str) -> None:
    for value in ("nobody", None):
        found = refused(stage, **{part: value})
        assert found.sqlstate == "OB003"
        assert "mail/default send" in (found.message_detail or "")
        assert "outbox providers apply" in (found.message_hint or "")


def test_what_is_declared_no_more_is_refused(stage: Stage) -> None:
    stage.declare({"operation": "other"})
    assert refused(stage).sqlstate == "OB003"


@pytest.mark.parametrize(
    "key", [None, "", " ", "a b", "a\r\nb", "a\n", "k" * 256, "k" * 300, "schlüssel", "a\tb", "a\x7f", "\u2028"]
)
def test_a_key_that_no_header_could_carry_is_refused(stage: Stage, key: str | None) -> None:
    found = refused(stage, idempotency_key=key)
    assert (found.sqlstate, "tenant:object:id:verb" in (found.message_hint or "")) == ("OB004", True)


@pytest.mark.parametrize("key", ["k", "k" * 255, "a:b/c?d=e&f#g~!$%^*()[]{}<>|\\'\"`@,;+"])
def test_a_key_of_visible_ascii_is_taken(stage: Stage, key: str) -> None:
    assert len(stage.insert_as("agent", GOOD | {"idempotency_key": key})) == 1


@pytest.mark.parametrize("payload", [None, "null", "[]", '"text"', "1", "true", DEEP])
def test_a_payload_that_is_no_object_or_too_deep_is_refused(stage: Stage, payload: str | None) -> None:
    found = refused(stage, payload=payload)
    assert (found.sqlstate, bool(found.message_hint)) == ("OB005", True)


def test_a_payload_of_64_levels_is_taken(stage: Stage) -> None:
    nested = '{"to": "x", "a": ' + "[" * 62 + "]" * 62 + "}"
    assert len(stage.insert_as("agent", GOOD | {"payload": nested})) == 1


def test_a_payload_that_is_too_large_is_refused_and_its_size_told(stage: Stage) -> None:
    found = refused(stage, payload={"to": "x", "text": "x" * 10_000_000})
    assert found.sqlstate == "OB005"
    assert "100000" in (found.message_primary or "")


@pytest.mark.parametrize(
    ("poison", "plain"),
    [
        ('{"a": "\\u0000"}', "22P05"),
        ('{"a": "\\ud800"}', "22P02"),
        ('{"\\udc00": 1}', "22P02"),
        ('{"a": 1e400000}', "22003"),
        ('{"a": NaN}', "22P02"),
        ("{", "22P02"),
        ("", "22P02"),
        (VERY_DEEP, "54001"),
    ],
    ids=["nul", "lone surrogate", "lone surrogate in a name", "number", "nan", "half", "empty", "deep"],
)
def test_poison_is_refused_by_a_plain_insert_and_explained_by_enqueue(stage: Stage, poison: str, plain: str) -> None:
    assert refused(stage, payload=poison).sqlstate == plain
    with pytest.raises(psycopg.Error) as error:
        stage.rows("agent", "select * from outbox.enqueue('mail', 'send', 'k1', %s)", poison)
    assert (error.value.sqlstate, bool(error.value.diag.message_hint)) == ("OB005", True)
    good = stage.insert("good")
    assert stage.claim()["ids"] == [good]


@pytest.mark.parametrize("number", ["9007199254740993", "1e400", "-0.10", "123456789012345678901234567890.5"])
def test_every_digit_of_a_number_is_kept(stage: Stage, number: str) -> None:
    stage.insert(payload='{"to": "x", "n": ' + number + "}")
    kept = stage.one("select payload->'n' = %s::jsonb from outbox.outbound_actions", number)
    assert kept
    assert "e" not in stage.claim()["rows"][0]["payload"].split('"n":')[1]


def test_a_recipient_must_be_what_the_payload_says(stage: Stage) -> None:
    found = refused(stage, recipient="b@example.com")
    assert (found.sqlstate, bool(found.message_hint)) == ("OB006", True)
    stage.insert("k1", recipient="a@example.com")
    assert stage.insert_as("agent", GOOD) == [], "named or taken from the payload, it is the same intent"


@pytest.mark.parametrize(
    ("to", "recipient"),
    [(["a@x", "b@x"], "a@x, b@x"), (["a@x"], "a@x"), (["a@x", None], "a@x"), (7, "7"), ([], None), (None, None)],
)
def test_a_recipient_is_taken_from_where_the_contract_says(stage: Stage, to: object, recipient: str | None) -> None:
    stage.insert("k1", payload={"to": to})
    assert stage.one("select recipient from outbox.outbound_actions") == recipient


@pytest.mark.parametrize("value", ["2001-01-01", "infinity", "-infinity"])
def test_a_deadline_must_be_finite_and_in_the_future(stage: Stage, value: str) -> None:
    found = refused(stage, deliver_by=value)
    assert (found.sqlstate, bool(found.message_hint)) == ("OB007", True)


@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_not_before_must_be_finite(stage: Stage, value: str) -> None:
    assert refused(stage, not_before=value).sqlstate == "OB007"


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("priority", 3),
        ("priority", -1),
        ("priority", None),
        ("traceparent", "00-xyz"),
        ("ordering_key", ""),
        ("ordering_key", "o" * 256),
        ("tenant", "t" * 256),
        ("recipient", "r" * 2001),
        ("content_version", "v" * 256),
    ],
)
def test_a_label_that_cannot_be_used_is_refused_with_a_hint(stage: Stage, label: str, value: object) -> None:
    stage.declare({"recipient_paths": []})
    found = refused(stage, **{label: value})
    assert (found.sqlstate, bool(found.message_hint)) == ("OB012", True)


def test_one_bad_row_takes_its_statement_and_no_more(stage: Stage) -> None:
    agent = stage.as_("agent")
    insert = "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload) values "
    with agent.transaction():
        stage.insert("before")
        rows = "('mail', 'send', 'good', '{}'), ('mail', 'send', 'bad key', '{}')"
        assert stage.refusal("agent", insert + rows) == "OB004"
        stage.insert("after")
    keys = stage.rows("owner", "select idempotency_key as key from outbox.keys order by 1")
    assert [row["key"] for row in keys] == ["after", "before"]
