"""What an attempt proved, from the transmission and the contract alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.attempt.attempt import attempt
from outbox_relay.attempt.classify import Finding, classify
from outbox_relay.attempt.classify_lookup import LookupFinding, classify_lookup
from outbox_relay.attempt.cleaning import EXCERPT_LIMIT, clean
from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.attempt.render import marker, render
from outbox_relay.attempt.render_lookup import render_lookup
from outbox_relay.attempt.send import Sender, open_http_client
from outbox_relay.providers.exchange import Answer, Phase, Transmission
from outbox_relay.states import Event
from tests.unit.attempts import (
    CONTRACTS,
    SECRET,
    account_of,
    answered,
    claim_of,
    http,
    long_lease,
    lost,
    raw_server,
    read_request,
)

IN_FLIGHT = {"name": "concurrent_idempotent_requests"}
OTHER_BODY = {"name": "invalid_idempotent_request"}


def judged(provider: str, operation: str, transmission: Transmission) -> Any:
    contract = CONTRACTS[provider]
    account = account_of(contract)
    request = render(claim_of(account, operation), contract, account)
    return classify(transmission, contract.operations[operation], request, attempt=1)


def resend(transmission: Any) -> Any:
    return judged("resend", "emails.send", transmission)


@pytest.mark.parametrize(
    ("transmission", "finding", "reason"),
    [
        (answered(200, {"id": "e_1"}), Finding.ACCEPTED, "http_200"),
        (answered(422, {"name": "validation_error"}), Finding.REFUSED, "refused_by_provider"),
        (answered(401, {}), Finding.HELD, "credential_refused"),
        (answered(403, {}), Finding.HELD, "credential_refused"),
        (answered(429, {}, retry_after="7"), Finding.NO_EFFECT, "throttled"),
        (answered(409, IN_FLIGHT), Finding.IN_PROGRESS, "key_in_progress"),
        (answered(409, OTHER_BODY), Finding.MISMATCH, "key_reused_with_another_body"),
        (answered(409, {"name": "something new"}), Finding.UNKNOWN, "http_409"),
        (answered(409, b"<html>"), Finding.UNKNOWN, "http_409"),
        (answered(408, b""), Finding.UNKNOWN, "http_408"),
        (answered(500, b""), Finding.UNKNOWN, "http_500"),
        (answered(502, b"<html>bad gateway"), Finding.UNKNOWN, "http_502"),
        (answered(503, b"", retry_after="30"), Finding.UNKNOWN, "http_503"),
        (answered(504, b""), Finding.UNKNOWN, "http_504"),
        (answered(599, b""), Finding.UNKNOWN, "http_599"),
        (answered(418, b""), Finding.UNKNOWN, "http_418"),
        (answered(101, b""), Finding.UNKNOWN, "http_101"),
        (answered(500, b"", idempotent_replayed="true"), Finding.UNKNOWN, "replayed_http_500"),
        (answered(302, b"", location="http://169.254.169.254/"), Finding.UNKNOWN, "redirected"),
        (answered(307, b""), Finding.UNKNOWN, "redirected"),
        (answered(200, {"id": "e_1"}, complete=False), Finding.UNKNOWN, "answer_broken_off_http_200"),
        (answered(422, b"{", complete=False), Finding.UNKNOWN, "answer_broken_off_http_422"),
        (lost(Phase.NOT_SENT, "connect_refused"), Finding.NO_EFFECT, "connect_refused"),
        (lost(Phase.NOT_SENT, "dns_failed"), Finding.NO_EFFECT, "dns_failed"),
        (lost(Phase.NOT_SENT, "tls_failed"), Finding.NO_EFFECT, "tls_failed"),
        (lost(Phase.NOT_SENT, "deadline_passed"), Finding.NO_EFFECT, "connect_timeout"),
        (lost(Phase.NOT_SENT, "lease_too_short", released=True), Finding.RELEASED, "lease_too_short"),
        (lost(Phase.SENT, "connection_lost"), Finding.UNKNOWN, "connection_lost"),
        (lost(Phase.SENT, "deadline_passed"), Finding.UNKNOWN, "deadline_passed"),
        (lost(Phase.SENT, "connect_refused"), Finding.UNKNOWN, "connect_refused"),
    ],
)
def test_an_attempt_proves_no_more_than_it_showed(transmission: Any, finding: Any, reason: Any) -> None:
    said = resend(transmission)
    assert (said.finding, said.reason) == (finding, reason)
    assert said.evidence.reason == reason
    assert said.evidence.phase == transmission.phase.value


@pytest.mark.parametrize("status", [200, 201, 202, 204])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b"<html>ok</html>",
        b"throttled",
        b'{"error": "throttled"}',
        b'{"id": null}',
        b'{"id": ""}',
        b'{"id": true}',
        b'{"id": {"a": 1}}',
        b'{"id": ["x"]}',
        b'{"id": "\\u0000"}',
        b'{"id": "\\ud800"}',
        b"\xff\xfe",
        b'{"id": NaN}',
        b"[" * 60_000,
        b'{"id": "' + b"a" * 300 + b'"}',
    ],
)
def test_a_2xx_without_an_id_is_never_accepted_and_never_failed(status: int, body: Any) -> None:
    """Cases O11 and O16 of faults.md F27, F28: delivered or not, only a lookup or a replay can tell."""
    for provider, operation in (("resend", "emails.send"), ("github", "issues.create"), ("slack", "chat.post_message")):
        assert judged(provider, operation, answered(status, body)).finding is Finding.UNKNOWN


def test_a_2xx_that_was_cut_at_our_cap_is_unknown_where_an_id_is_needed_and_accepted_where_the_status_decides() -> None:
    cut = answered(200, b'{"id": "x"' + b" " * 65_000, capped=True)
    assert resend(cut).finding is Finding.UNKNOWN
    assert judged("standard-webhooks", "events.send", cut).finding is Finding.ACCEPTED


def test_a_numeric_id_keeps_every_digit() -> None:
    said = judged("github", "issues.create", answered(201, b'{"id": 9007199254740993123}'))
    assert (said.finding, said.provider_id) == (Finding.ACCEPTED, "9007199254740993123")
    assert (said.evidence.proves, said.evidence.provider_id) == ("acceptance", "9007199254740993123")


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ({"ok": True, "channel": "C1", "ts": "1.2"}, Finding.ACCEPTED),
        ({"ok": True, "channel": "C1"}, Finding.UNKNOWN),
        ({"ok": False, "error": "channel_not_found"}, Finding.REFUSED),
        ({"ok": False, "error": "invalid_auth"}, Finding.HELD),
        ({"ok": False, "error": "ratelimited"}, Finding.NO_EFFECT),
        ({"ok": False, "error": "internal_error"}, Finding.UNKNOWN),
        ({"ok": False, "error": "fatal_error"}, Finding.UNKNOWN),
        ({"ok": False}, Finding.UNKNOWN),
        ({"ok": False, "error": {"a": 1}}, Finding.UNKNOWN),
        ({"ok": "true", "channel": 5, "ts": 6}, Finding.UNKNOWN),
    ],
)
def test_a_200_of_slack_means_what_its_body_says(body: Any, finding: Any) -> None:
    assert judged("slack", "chat.post_message", answered(200, body)).finding is finding


@pytest.mark.parametrize(
    ("transmission", "finding"),
    [
        (answered(200, {"id": "pi_1", "status": "requires_action"}), Finding.ACCEPTED),
        (answered(400, {"error": {"type": "idempotency_error"}}), Finding.MISMATCH),
        (answered(400, {"error": {"type": "invalid_request_error"}}), Finding.REFUSED),
        (answered(402, {"error": {"type": "card_error"}}), Finding.REFUSED),
        (answered(409, {"error": {"code": "idempotency_key_in_use"}}), Finding.IN_PROGRESS),
        (answered(429, {}), Finding.NO_EFFECT),
        (answered(500, {}), Finding.UNKNOWN),
    ],
)
def test_the_two_meanings_of_an_idempotency_answer_of_stripe(transmission: Any, finding: Any) -> None:
    assert judged("stripe", "payment_intents.create", transmission).finding is finding


def test_a_403_of_github_is_read_before_it_is_believed() -> None:
    limited = judged("github", "issues.create", answered(403, {"message": "You have exceeded a secondary rate limit"}))
    assert (limited.finding, limited.retry_after_s, limited.pause_account) == (Finding.NO_EFFECT, 60.0, True)
    reset = answered(
        403, {}, x_ratelimit_remaining="0", x_ratelimit_reset="1796040300", date="Mon, 30 Nov 2026 12:00:00 GMT"
    )
    assert judged("github", "issues.create", reset).retry_after_s == 300.0
    forbidden = judged("github", "issues.create", answered(403, {"message": "Resource not accessible"}))
    assert (forbidden.finding, forbidden.pause_account) == (Finding.HELD, False)


def test_mismatch_and_in_progress_prove_arrival_and_leave_the_outcome_unknown() -> None:
    for body in (IN_FLIGHT, OTHER_BODY):
        said = resend(answered(409, body))
        assert (said.event, said.evidence.proves) == (Event.RESPONSE_LOST, "arrival")


def test_every_finding_is_an_event_of_the_ledger() -> None:
    wanted = {
        Finding.ACCEPTED: Event.ACCEPTED,
        Finding.REFUSED: Event.REFUSED,
        Finding.NO_EFFECT: Event.NO_EFFECT,
        Finding.HELD: Event.HELD,
        Finding.RELEASED: Event.RELEASED,
        Finding.UNKNOWN: Event.RESPONSE_LOST,
        Finding.IN_PROGRESS: Event.RESPONSE_LOST,
        Finding.MISMATCH: Event.RESPONSE_LOST,
    }
    assert set(wanted) == set(Finding)
    shown = [
        answered(200, {"id": "x"}),
        answered(422, {}),
        answered(429, {}),
        answered(401, {}),
        lost(Phase.NOT_SENT, released=True),
        lost(Phase.SENT),
        answered(409, IN_FLIGHT),
        answered(409, OTHER_BODY),
    ]
    assert {said.finding: said.event for said in map(resend, shown)} == wanted


@pytest.mark.parametrize(
    ("transmission", "paused", "wait"),
    [
        (answered(429, {}, retry_after="7"), True, 7.0),
        (answered(429, {}), True, None),
        (answered(401, {}), True, None),
        (answered(302, b""), True, None),
        (answered(503, b"", retry_after="30"), False, 30.0),
        (answered(422, {}), False, None),
        (answered(200, {"id": "x"}), False, None),
    ],
)
def test_what_follows_for_the_account(transmission: Any, paused: Any, wait: Any) -> None:
    said = resend(transmission)
    assert (said.pause_account, said.retry_after_s) == (paused, wait)


@given(
    st.integers(100, 599),
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3),
                st.dictionaries(
                    st.sampled_from(
                        ["id", "ok", "error", "name", "ts", "channel", "type", "status", "dedup_key", "message"]
                    ),
                    inner,
                    max_size=4,
                ),
            ),
            max_leaves=10,
        ).map(lambda value: json.dumps(value).encode()),
    ),
    st.dictionaries(
        st.sampled_from(["retry-after", "date", "content-type", "idempotent-replayed", "x-ratelimit-reset"]),
        st.text(max_size=20).map(lambda text: (text,)),
        max_size=3,
    ),
    st.sampled_from([(provider, name) for provider, contract in CONTRACTS.items() for name in contract.operations]),
    st.booleans(),
)
def test_no_answer_makes_it_raise_and_server_errors_stay_unknown(
    status: int, body: Any, headers: Any, operation: Any, complete: Any
) -> None:
    answer = Answer(status, headers, body, complete=complete)
    said = judged(
        operation[0], operation[1], Transmission(Phase.COMPLETE if complete else Phase.BODY, answer, None, 0.1)
    )
    if status >= 500 or not complete:
        assert said.finding is Finding.UNKNOWN
    if said.finding is Finding.ACCEPTED:
        assert 200 <= status < 300
    assert "\x00" not in (said.evidence.excerpt or "")


# ---- What is kept ----------------------------------------------------------------------------------------------------


def test_an_answer_with_nul_surrogates_and_five_megabytes_can_be_stored() -> None:
    """Case O4: the outcome of one row must never spoil a batch."""
    body = json.dumps({"message": "no\u0000way \ud800 " + "x" * 5_000_000}).encode()[:65_536]
    said = resend(answered(400, b"\x00\xed\xa0\x80" + body, capped=True, content_type="a\x00b"))
    assert said.finding is Finding.REFUSED
    kept = [said.evidence.excerpt, said.message, said.reason, *said.evidence.headers.values()]
    for text in kept:
        assert text.encode(), "encodes, so that no lone surrogate is left"
        assert "\x00" not in text
        assert len(text) <= EXCERPT_LIMIT


def test_secrets_that_a_provider_echoes_are_masked() -> None:
    said = resend(answered(401, {"message": f"bad key {SECRET}"}, x_request_id=SECRET))
    assert SECRET not in repr(said)
    assert "***" in said.evidence.excerpt


def test_basic_credentials_are_masked_in_the_form_in_which_they_travel() -> None:
    assert clean("Basic dXNlcjpwYXNz", secrets=("user", "pass", "dXNlcjpwYXNz")) == "Basic ***"


def test_the_message_for_people_holds_words_of_ours_only() -> None:
    said = resend(answered(422, {"message": "b@example.com is not a recipient"}))
    assert said.message == "refused: refused_by_provider (phase complete, status 422)"
    assert resend(answered(200, {"id": "x"})).message is None


@given(st.text(), st.integers(1, 50))
def test_cleaned_text_is_short_and_storable(text: Any, limit: Any) -> None:
    cleaned = clean(text, limit=limit)
    assert len(cleaned) <= limit
    assert "\x00" not in cleaned
    cleaned.encode()


def test_a_secret_at_the_cut_is_masked_before_it_is_cut() -> None:
    assert "abcdefgh"[:4] not in clean("x" * 5 + "abcdefgh", limit=10, secrets=["abcdefgh"])


# ---- The lookup ------------------------------------------------------------------------------------------------------


def found(provider: str, operation: str, transmission: Any) -> Any:
    contract = CONTRACTS[provider]
    account = account_of(contract)
    claim = claim_of(account, operation)
    request = render_lookup(claim, contract, account)
    return classify_lookup(transmission, claim, contract.operations[operation], request)


def comment(number: int, *, ours: bool = False, key: str = "acme:order:42:notify:1") -> Any:
    return {"id": number, "body": f"text\n\n<!-- outbox-relay {key} -->" if ours else "text"}


COMMENTS = ("github", "issue_comments.create")
NEXT = '<https://api.github.com/x?page=2>; rel="next", <https://api.github.com/x?page=9>; rel="last"'


@pytest.mark.parametrize(
    ("transmission", "finding", "ids", "page"),
    [
        (answered(200, [comment(1), comment(2, ours=True)]), LookupFinding.FOUND, ("2",), None),
        (answered(200, [comment(1, ours=True), comment(2, ours=True)]), LookupFinding.FOUND, ("1", "2"), None),
        (answered(200, [comment(1, ours=True)], link=NEXT), LookupFinding.FOUND, ("1",), None),
        (answered(200, []), LookupFinding.ABSENT, (), None),
        (answered(200, [comment(1)]), LookupFinding.ABSENT, (), None),
        (answered(200, [comment(1, ours=True, key="acme:order:42:notify:10")]), LookupFinding.ABSENT, (), None),
        (answered(200, [{"id": 1, "body": None}, {"id": 2}, 5, None]), LookupFinding.ABSENT, (), None),
        (answered(200, [comment(1)], link=NEXT), LookupFinding.MORE, (), "https://api.github.com/x?page=2"),
        (answered(200, [comment(1)], link='<https://x/>; rel="prev"'), LookupFinding.ABSENT, (), None),
        (answered(200, {"message": "moved"}), LookupFinding.INCONCLUSIVE, (), None),
        (answered(200, b"<html>"), LookupFinding.INCONCLUSIVE, (), None),
        (answered(200, b""), LookupFinding.INCONCLUSIVE, (), None),
        (answered(200, [], complete=False), LookupFinding.INCONCLUSIVE, (), None),
        (answered(200, [], capped=True), LookupFinding.INCONCLUSIVE, (), None),
        (answered(404, {}), LookupFinding.INCONCLUSIVE, (), None),
        (answered(500, []), LookupFinding.INCONCLUSIVE, (), None),
        (answered(304, b""), LookupFinding.INCONCLUSIVE, (), None),
        (answered(401, {}), LookupFinding.INCONCLUSIVE, (), None),
        (answered(429, [], retry_after="90"), LookupFinding.INCONCLUSIVE, (), None),
        (lost(Phase.SENT), LookupFinding.INCONCLUSIVE, (), None),
        (lost(Phase.NOT_SENT), LookupFinding.INCONCLUSIVE, (), None),
    ],
)
def test_a_page_says_absent_only_when_it_was_understood_and_is_the_last(
    transmission: Any, finding: Any, ids: Any, page: Any
) -> None:
    said = found(*COMMENTS, transmission)
    assert (said.finding, said.provider_ids, said.next_page) == (finding, ids, page)
    proves = {LookupFinding.FOUND: "acceptance", LookupFinding.ABSENT: "absence"}.get(finding, "nothing")
    assert (said.evidence.kind, said.evidence.proves) == ("lookup", proves)


def test_a_throttled_lookup_pauses_the_account() -> None:
    said = found(*COMMENTS, answered(429, [], retry_after="90"))
    assert (said.pause_account, said.retry_after_s) == (True, 90.0)


def test_other_peoples_content_is_not_kept() -> None:
    assert found(*COMMENTS, answered(200, [comment(1)])).evidence.excerpt is None


def test_stripe_and_slack_are_read_by_cursor() -> None:
    mine = {"id": "pi_2", "metadata": {"outbox_key": "acme:order:42:notify:1"}}
    operation = ("stripe", "payment_intents.create")
    more = found(*operation, answered(200, {"data": [{"id": "pi_1", "metadata": {}}], "has_more": True}))
    assert (more.finding, more.next_page) == (LookupFinding.MORE, "pi_1")
    assert found(*operation, answered(200, {"data": [mine], "has_more": False})).provider_ids == ("pi_2",)
    assert found(*operation, answered(200, {"data": [], "has_more": False})).finding is LookupFinding.ABSENT
    message = {"ts": "1.5", "metadata": {"event_type": "outbox_action", "event_payload": mine["metadata"]}}
    slack = ("slack", "chat.post_message")
    page = {"ok": True, "messages": [{"ts": "1.4"}], "response_metadata": {"next_cursor": "abc"}}
    assert found(*slack, answered(200, page)).next_page == "abc"
    assert found(*slack, answered(200, {"ok": True, "messages": [message]})).provider_ids == ("1.5",)
    assert found(*slack, answered(200, {"ok": False, "error": "missing_scope"})).finding is LookupFinding.INCONCLUSIVE


def test_the_mark_of_one_key_is_not_found_inside_another() -> None:
    operation = CONTRACTS["github"].operations["issues.create"]
    account = account_of(CONTRACTS["github"])
    one, longer = (marker(claim_of(account, "issues.create", wire_key=key), operation) for key in ("a:1", "a:12"))
    assert one.strip() not in longer
    assert longer.strip() not in one


# ---- One attempt, whole ----------------------------------------------------------------------------------------------


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    while True:
        await read_request(reader)
        writer.write(http("200 OK", b'{"id": "e_1"}'))
        await writer.drain()


async def attempted(server_url: str, *, lease: Lease | None = None, deadline_s: float = 2.0, **changed: Any) -> Any:
    contract = CONTRACTS["resend"]
    account = account_of(contract, base_url=server_url, **changed)
    async with open_http_client() as client:
        claim = claim_of(account, "emails.send")
        return await attempt(claim, contract, account, Sender(client), lease or long_lease(), deadline_s=deadline_s)


async def test_an_attempt_is_one_request_with_the_key_and_the_exact_body() -> None:
    async with raw_server(accept) as server:
        said = await attempted(server.url)
        head, _, body = bytes(server.received[0]).partition(b"\r\n\r\n")
        assert server.requests() == 1
    assert (said.finding, said.provider_id) == (Finding.ACCEPTED, "e_1")
    assert b"\r\nIdempotency-Key: acme:order:42:notify:1\r\n" in head
    assert body == claim_of(account_of(CONTRACTS["resend"]), "emails.send").payload.encode()


@pytest.mark.parametrize("mode", ["hold", "shadow"])
async def test_hold_and_shadow_render_everything_and_send_nothing(mode: Any) -> None:
    async with raw_server(accept) as server:
        said = await attempted(server.url, mode=mode)
        assert len(server.received) == 0
    assert (said.finding, said.reason) == (Finding.HELD, f"account_in_{mode}")
    assert said.evidence.body_sha256


async def test_a_recipient_outside_the_allow_list_gets_nothing() -> None:
    async with raw_server(accept) as server:
        said = await attempted(server.url, allow_recipients=("*@other.com",))
        assert len(server.received) == 0
    assert (said.finding, said.reason) == (Finding.HELD, "recipient_not_allowed")


async def test_a_claim_whose_lease_no_longer_covers_the_deadline_is_released_unsent() -> None:
    async with raw_server(accept) as server:
        said = await attempted(server.url, lease=Lease(boottime() - 29, 30))
        assert server.bytes_received == 0
    assert (said.finding, said.event, said.evidence.phase) == (Finding.RELEASED, Event.RELEASED, "not_sent")


async def test_a_signature_is_of_the_attempt_and_everything_else_is_the_same() -> None:
    from standardwebhooks.webhooks import Webhook

    from tests.unit.attempts import SIGNING_SECRET

    contract = CONTRACTS["standard-webhooks"]
    async with raw_server(accept) as server, open_http_client() as client:
        account = account_of(contract, base_url=f"{server.url}/hook")
        claim = claim_of(account, "events.send")
        for _ in range(2):
            said = await attempt(claim, contract, account, Sender(client), long_lease(), deadline_s=2)
            assert said.finding is Finding.ACCEPTED
        requests = bytes(server.received[0]).split(b"POST /hook HTTP/1.1\r\n")[1:]
    for raw in requests:
        head, _, body = raw.decode().partition("\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.split("\r\n"))
        assert headers["webhook-id"] == claim.wire_key
        assert body == claim.payload
        Webhook(SIGNING_SECRET).verify(body, {name.lower(): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("provider", "operation", "connections"),
    [("resend", "emails.send", 1), ("github", "issues.create", 3), ("slack", "chat.post_message", 3)],
)
async def test_only_what_can_be_replayed_reuses_a_connection(provider: str, operation: str, connections: int) -> None:
    """A kept connection may be closing while we write: without a key that would cost a person's time."""
    contract = CONTRACTS[provider]
    async with raw_server(accept) as server, open_http_client() as client:
        account = account_of(contract, base_url=server.url)
        for _ in range(3):
            await attempt(claim_of(account, operation), contract, account, Sender(client), long_lease(), deadline_s=2)
        assert (server.requests(), len(server.received)) == (3, connections)
