"""The request is exact: the payload's own bytes, the same on every attempt, and refused where it would differ."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.attempt import exact_json
from outbox_relay.attempt.exact_json import NotExact, Number
from outbox_relay.attempt.render import form, marker, render
from outbox_relay.attempt.render_lookup import render_lookup
from outbox_relay.attempt.request import CannotRender
from tests.unit.attempts import CONTRACTS, PAYLOADS, SECRET, account_of, claim_of

RESEND, GITHUB, STRIPE = CONTRACTS["resend"], CONTRACTS["github"], CONTRACTS["stripe"]
SLACK, PAGERDUTY, HOOKS = CONTRACTS["slack"], CONTRACTS["pagerduty"], CONTRACTS["standard-webhooks"]

numbers = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda n: format(n, "f")[:80]),
    st.sampled_from(["9007199254740993", "1e400", "2.50", "-0", "-0.0", "1E+5", "0.1e-300", "12345678901234567890.10"]),
).filter(lambda text: not text.endswith("."))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def values() -> Any:
    plain = st.one_of(numbers.map(Number), texts, st.booleans(), st.none())
    return st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
        max_leaves=8,
    )


def written(value: Any, space: str) -> str:
    """JSON text with white space of the caller's, numbers by their digits."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, list):
        return f"[{space}{f'{space},{space}'.join(written(item, space) for item in value)}{space}]"
    if isinstance(value, dict):
        members = f"{space},{space}".join(
            f"{json.dumps(name)}{space}:{space}{written(item, space)}" for name, item in value.items()
        )
        return f"{{{space}{members}{space}}}"
    return json.dumps(value, ensure_ascii=space == "")


objects = st.tuples(st.dictionaries(texts, values(), max_size=5), st.sampled_from(["", " ", "\n\t"]))


def refused(claim: Any, contract: Any, account: Any) -> CannotRender:
    with pytest.raises(CannotRender) as refusal:
        render(claim, contract, account)
    return refusal.value


# ---- The body ------------------------------------------------------------------------------------------------------


@given(objects, numbers, texts)
def test_a_json_body_is_the_payloads_text_byte_for_byte(drawn: Any, number: Any, text: Any) -> None:
    members, space = drawn
    payload = PAYLOADS["resend", "emails.send"] | {"subject": text, "extra": members, "amount": Number(number)}
    account = account_of(RESEND)
    claim = claim_of(account, "emails.send", written(payload, space))
    assert render(claim, RESEND, account).body == claim.payload.encode()


@given(objects, numbers, texts)
def test_placing_a_key_or_a_mark_touches_no_other_byte(drawn: Any, number: Any, text: Any) -> None:
    members, space = drawn
    members = {name: value for name, value in members.items() if name not in ("owner", "repo", "issue_number", "body")}
    payload = {"owner": "acme", "repo": "shop", "issue_number": 7, "n": Number(number)} | members | {"body": text + "x"}
    payload |= {"owner": "acme", "repo": "shop", "issue_number": 7}
    account = account_of(GITHUB)
    claim = claim_of(account, "issue_comments.create", written(payload, space))
    body = render(claim, GITHUB, account).body.decode()
    mark = json.dumps(marker(claim, GITHUB.operations["issue_comments.create"]), ensure_ascii=False)[1:-1]
    assert body.count(mark) == 1
    left = exact_json.read(body.replace(mark, ""))
    assert left == {
        name: exact_json.read(written(value, ""))
        for name, value in payload.items()
        if name not in ("owner", "repo", "issue_number")
    }
    for value in members.values():
        assert written(value, space) in body, "what is not ours keeps its very bytes"


@given(objects)
def test_an_exact_reading_gives_back_every_digit(drawn: Any) -> None:
    members, space = drawn
    assert exact_json.read(written(members, space)) == members


@pytest.mark.parametrize(
    "number", ["9007199254740993", "-9223372036854775809", "18446744073709551617", "2.50", "1e400"]
)
def test_numbers_that_no_float_holds_arrive_with_every_digit(number: Any) -> None:
    account = account_of(PAGERDUTY)
    text = (
        '{"event_action": "trigger", "payload": {"summary": "größer 🚀", "source": "a", "severity": "info",'
        f' "custom_details": {{"n": {number}}}}}}}'
    )
    body = render(claim_of(account, "events.enqueue", text), PAGERDUTY, account).body
    assert f'"n": {number}'.encode() in body
    assert "größer 🚀".encode() in body


def test_a_number_of_a_million_digits_is_no_trouble() -> None:
    assert isinstance(exact_json.plain(exact_json.read("9" * 5_000)), Decimal)


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', "{", "[1, NaN]", '{"a": Infinity}', "{'a': 1}", "[" * 100_000, ""]
)
def test_what_cannot_be_read_without_a_doubt_is_refused(text: Any) -> None:
    with pytest.raises(NotExact):
        exact_json.read(text)


def test_a_key_in_the_body_and_a_secret_in_the_body_are_placed_beside_the_payload() -> None:
    account = account_of(PAGERDUTY)
    request = render(claim_of(account, "events.enqueue"), PAGERDUTY, account)
    assert json.loads(request.body) == PAYLOADS["pagerduty", "events.enqueue"] | {
        "dedup_key": "acme:order:42:notify:1",
        "routing_key": SECRET,
    }


def test_a_place_that_is_taken_is_refused_and_never_overwritten() -> None:
    account = account_of(STRIPE)
    payload = {"amount": 1, "currency": "eur", "metadata": {"outbox_key": "mine"}}
    refusal = refused(claim_of(account, "payment_intents.create", payload), STRIPE, account)
    assert refusal.reason == "place_taken"
    assert "mine" not in str(refusal)


def test_slack_gets_its_mark_and_the_event_type_that_goes_with_it() -> None:
    account = account_of(SLACK)
    body = json.loads(render(claim_of(account, "chat.post_message"), SLACK, account).body)
    assert body["metadata"] == {
        "event_type": "outbox_action",
        "event_payload": {"outbox_key": "acme:order:42:notify:1"},
    }


def test_form_fields_carry_nested_members_lists_and_every_digit() -> None:
    account = account_of(STRIPE)
    text = (
        '{"amount": 9007199254740993, "currency": "eur", "metadata": {"note": "a&b=c é"}, "confirm": true,'
        ' "payment_method_types": ["card", "ideal"], "rate": 2.50}'
    )
    request = render(claim_of(account, "payment_intents.create", text), STRIPE, account)
    assert parse_qsl(request.body.decode(), strict_parsing=True) == [
        ("amount", "9007199254740993"),
        ("currency", "eur"),
        ("metadata[note]", "a&b=c é"),
        ("metadata[outbox_key]", "acme:order:42:notify:1"),
        ("confirm", "true"),
        ("payment_method_types[0]", "card"),
        ("payment_method_types[1]", "ideal"),
        ("rate", "2.50"),
    ]
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize("value", [{"a": None}, {"a": {}}, {"a": []}])
def test_what_a_form_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(NotExact):
        form(value)


@given(st.dictionaries(texts.filter(bool), st.one_of(texts, numbers.map(Number)), min_size=1, max_size=5))
def test_no_text_can_add_a_form_field(members: Any) -> None:
    fields = parse_qsl(form(members), keep_blank_values=True, strict_parsing=True)
    assert fields == [(name, v.text if isinstance(v, Number) else v) for name, v in members.items()]


# ---- The key, the headers, the URL -----------------------------------------------------------------------------------


def test_two_attempts_are_the_same_in_every_byte() -> None:
    for (provider, operation), payload in PAYLOADS.items():
        account = account_of(CONTRACTS[provider])
        one = render(claim_of(account, operation, payload), CONTRACTS[provider], account)
        two = render(claim_of(account, operation, payload, attempt=7), CONTRACTS[provider], account)
        assert (one, dict(one.headers)) == (two, dict(two.headers))


def test_the_wire_key_stands_in_its_header_raw_or_quoted() -> None:
    account = account_of(RESEND)
    assert (
        render(claim_of(account, "emails.send"), RESEND, account).headers["Idempotency-Key"] == "acme:order:42:notify:1"
    )
    operation = RESEND.operations["emails.send"]
    rules = operation.idempotency.model_copy(update={"quoted": True})
    quoted = RESEND.model_copy(
        update={"operations": {"emails.send": operation.model_copy(update={"idempotency": rules})}}
    )
    account = account_of(quoted)
    request = render(claim_of(account, "emails.send"), quoted, account)
    assert request.headers["Idempotency-Key"] == '"acme:order:42:notify:1"'


@pytest.mark.parametrize("key", ["a" * 257, "a b", "a\r\nX-Evil: 1", "ключ", "", "a\n"])
def test_a_key_that_does_not_fit_is_refused_and_smuggles_no_header(key: Any) -> None:
    account = account_of(RESEND)
    assert refused(claim_of(account, "emails.send", wire_key=key), RESEND, account).reason == "key_unfit"


def test_a_marker_cannot_close_the_comment_it_stands_in() -> None:
    account = account_of(GITHUB)
    claim = claim_of(account, "issue_comments.create", wire_key="a-->b")
    assert refused(claim, GITHUB, account).reason == "key_unfit"


@pytest.mark.parametrize("repo", ["..", ".", "a/b", "a?b", "a#b", "a b", "", "a\r\nb", "%2e%2e"])
def test_a_payload_cannot_change_the_path(repo: Any) -> None:
    account = account_of(GITHUB)
    payload = PAYLOADS["github", "issues.create"] | {"repo": repo}
    assert refused(claim_of(account, "issues.create", payload), GITHUB, account).reason in (
        "payload_refused",
        "path_unfit",
    )


@given(st.text(min_size=1))
def test_whatever_stands_in_a_path_stays_one_step(text: Any) -> None:
    operation = GITHUB.operations["issues.create"].model_copy(update={"payload_schema": {"type": "object"}})
    contract = GITHUB.model_copy(update={"operations": {"issues.create": operation}})
    account = account_of(contract)
    payload = json.dumps(PAYLOADS["github", "issues.create"] | {"repo": text})
    request = None
    with suppress(CannotRender):
        request = render(claim_of(account, "issues.create", payload), contract, account)
    if request is not None:
        assert request.url.split("/")[:5] == ["https:", "", "api.github.com", "repos", "acme"]
        assert request.url.count("/") == 6
        assert not set("?#\\\r\n ") & set(request.url)


# ---- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"contract_version": "1+000000000000"}, "contract_changed"),
        ({"base_url": "https://api.eu.resend.com"}, "address_changed"),
        ({"account_identity": "team_2"}, "account_changed"),
        ({"operation": "emails.cancel"}, "operation_missing"),
    ],
)
def test_a_request_that_would_differ_from_an_earlier_attempts_is_refused(changed: Any, reason: Any) -> None:
    account = account_of(RESEND)
    refusal = refused(replace(claim_of(account, "emails.send"), **changed), RESEND, account)
    assert refusal.reason == reason
    assert refusal.hint


def test_an_operation_that_the_account_does_not_declare_is_refused() -> None:
    account = account_of(STRIPE, operations=("refunds.create",))
    assert refused(claim_of(account, "payment_intents.create"), STRIPE, account).reason == "operation_missing"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"to": "b@example.com", "subject": "s"}, "payload_refused"),
        ({"from": "a@example.com", "to": 5, "subject": "private"}, "payload_refused"),
        ('{"from": "a@x", "to": "b@x", "subject": "\\ud800"}', None),
        ('{"from": "a@x", "to": "b@x", "subject": "\ud800"}', "payload_unreadable"),
        ("[]", "payload_unreadable"),
        ("{", "payload_unreadable"),
        ('{"a": ' * 500 + "1" + "}" * 500, "payload_unreadable"),
        (json.dumps({"from": "a@x", "to": "b@x", "subject": "s", "html": "x" * 1_100_000}), "payload_too_large"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_without_saying_what_is_in_it(payload: Any, reason: Any) -> None:
    account = account_of(RESEND)
    claim = claim_of(account, "emails.send", payload)
    if reason is None:
        assert render(claim, RESEND, account).body == claim.payload.encode()
        return
    refusal = refused(claim, RESEND, account)
    assert refusal.reason == reason
    assert "example.com" not in str(refusal)
    assert "private" not in str(refusal)


@pytest.mark.parametrize(
    ("to", "allowed"),
    [
        ("b@example.com", True),
        ("B@EXAMPLE.COM", True),
        ("Bob <b@example.com>", True),
        (["b@example.com", "c@example.com"], True),
        (["b@example.com", "evil@other.com"], False),
        ("evil@other.com", False),
        ("evil@other.com <b@example.com.other.com>", False),
        ("b@example.com, evil@other.com", False),
        ("evil@other.com,b@example.com", False),
        ("evil@other.com, Bob <b@example.com>", False),
        ("b@example.com\nevil@other.com", False),
        ("b@exampleXcom", False),
    ],
)
def test_nobody_outside_the_allow_list_is_reached(to: Any, allowed: Any) -> None:
    account = account_of(RESEND, allow_recipients=("*@example.com",))
    claim = claim_of(account, "emails.send", PAYLOADS["resend", "emails.send"] | {"to": to})
    if allowed:
        assert render(claim, RESEND, account).url
    else:
        assert refused(claim, RESEND, account).reason == "recipient_not_allowed"


@pytest.mark.parametrize("field", ["cc", "bcc"])
def test_the_allow_list_also_sees_copies(field: Any) -> None:
    account = account_of(RESEND, allow_recipients=("*@example.com",))
    claim = claim_of(account, "emails.send", PAYLOADS["resend", "emails.send"] | {field: ["x@other.com"]})
    assert refused(claim, RESEND, account).reason == "recipient_not_allowed"


def test_where_the_contract_cannot_tell_who_is_reached_the_row_must_say_it() -> None:
    account = account_of(GITHUB, allow_recipients=("acme/*",))
    assert refused(claim_of(account, "issues.create"), GITHUB, account).reason == "recipient_not_allowed"
    assert render(claim_of(account, "issues.create", recipient="acme/shop"), GITHUB, account).url


def test_a_request_shows_no_secret_no_header_and_no_body() -> None:
    account = account_of(RESEND)
    request = render(claim_of(account, "emails.send"), RESEND, account)
    assert SECRET in request.headers["Authorization"]
    assert SECRET not in repr(request)
    assert "example.com" not in repr(request)


def test_a_secret_in_a_path_is_sent_and_never_kept() -> None:
    operation = RESEND.operations["emails.send"].model_copy(update={"path": "/bot{credential:api_key}/send"})
    contract = RESEND.model_copy(update={"operations": {"emails.send": operation}})
    account = account_of(contract)
    request = render(claim_of(account, "emails.send"), contract, account)
    assert request.url == f"https://api.resend.com/bot{SECRET}/send"
    assert request.target == "https://api.resend.com/bot***/send"
    assert SECRET not in repr(request)


@given(st.text(max_size=40))
def test_no_key_smuggles_a_header(key: str) -> None:
    """Case F38: a key is sent as it is, or not at all."""
    account = account_of(RESEND)
    with suppress(CannotRender):
        request = render(claim_of(account, "emails.send", wire_key=key), RESEND, account)
        assert request.headers["Idempotency-Key"] == key
        assert key.isascii()
        assert key.isprintable()
        assert " " not in key


# ---- The lookup -----------------------------------------------------------------------------------------------------


def test_a_lookup_asks_from_before_the_first_attempt() -> None:
    account = account_of(GITHUB)
    request = render_lookup(claim_of(account, "issue_comments.create"), GITHUB, account)
    assert request.url == (
        "https://api.github.com/repos/acme/shop/issues/7/comments?since=2026-11-30T11%3A55%3A00Z&per_page=50"
    )
    assert (request.method, request.has_body) == ("GET", False)


def test_a_lookup_leaves_out_what_the_payload_lacks_and_places_the_cursor() -> None:
    account = account_of(STRIPE)
    claim = claim_of(account, "payment_intents.create")
    first, second = (render_lookup(claim, STRIPE, account, page).url for page in (None, "pi_9&x=1"))
    assert first == "https://api.stripe.com/v1/payment_intents?limit=100&created[gte]=1796039700"
    assert second == f"{first}&starting_after=pi_9%26x%3D1"


def test_a_next_page_at_another_address_is_never_asked_for() -> None:
    account = account_of(GITHUB)
    claim = claim_of(account, "issue_comments.create")
    good = "https://api.github.com/repositories/1/issues/7/comments?page=2"
    assert render_lookup(claim, GITHUB, account, good).url == good
    for page in (
        "https://evil.example/x",
        "http://api.github.com/x",
        "https://api.github.com@evil.example/",
        "//evil/",
    ):
        with pytest.raises(CannotRender) as refusal:
            render_lookup(claim, GITHUB, account, page)
        assert refusal.value.reason == "page_elsewhere"


def test_a_lookup_needs_no_equal_contract_but_the_same_account() -> None:
    account = account_of(GITHUB)
    claim = claim_of(account, "issues.create", contract_version="0+000000000000")
    assert render_lookup(claim, GITHUB, account).url
    with pytest.raises(CannotRender, match="identity"):
        render_lookup(replace(claim, account_identity="somebody else"), GITHUB, account)


def test_a_provider_without_a_lookup_is_not_asked() -> None:
    account = account_of(RESEND)
    with pytest.raises(CannotRender, match="declares no lookup"):
        render_lookup(claim_of(account, "emails.send"), RESEND, account)
