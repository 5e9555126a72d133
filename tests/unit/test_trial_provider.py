"""The simulated provider does what its contract says and what it is told, and its book is right about it."""

from __future__ import annotations

import http.client
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from outbox_relay.trial.faults import Fault
from outbox_relay.trial.place import SimulatedProvider
from outbox_relay.trial.processes import wait_until
from tests.plugins.provider import StartProvider

Seen = tuple[int, Any, Any]

EMAIL = {"from": "a@example.com", "to": ["b@example.com"], "subject": "deploy 42"}


def ask(
    provider: SimulatedProvider, method: str, path: str, body: bytes | None = None, timeout: float = 5, **headers: str
) -> Seen:
    """(status, headers, parsed body) of one request on its own connection; raises when no answer comes."""
    connection = http.client.HTTPConnection("127.0.0.1", provider.program.port, timeout=timeout)
    try:
        sent = {"Authorization": "Bearer t"} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read()
        try:
            return answer.status, answer.headers, json.loads(text)
        except ValueError:
            return answer.status, answer.headers, text
    finally:
        connection.close()


def send_email(provider: SimulatedProvider, key: str, *, subject: str = "deploy 42", timeout: float = 5) -> Seen:
    body = json.dumps(EMAIL | {"subject": subject}).encode()
    return ask(provider, "POST", "/emails", body, timeout, Idempotency_Key=key)


def comment(provider: SimulatedProvider, key: str, *, issue: int = 7) -> Seen:
    body = json.dumps({"body": f"deployed\n\n<!-- outbox-relay {key} -->"}).encode()
    return ask(provider, "POST", f"/repos/o/r/issues/{issue}/comments", body)


def all_comments(
    provider: SimulatedProvider, *, issue: int = 7, since: str = "2020-01-01T00:00:00Z"
) -> list[dict[str, Any]]:
    path: str | None = f"/repos/o/r/issues/{issue}/comments?since={since}&per_page=100"
    found = []
    while path:
        status, headers, items = ask(provider, "GET", path)
        assert status == 200
        found += items
        link = headers.get("Link", "")
        path = link.split(";")[0].strip("<>").split(str(provider.program.port), 1)[1] if 'rel="next"' in link else None
    return found


def test_a_replay_inside_the_window_returns_the_first_answer_and_does_nothing(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    first = send_email(provider, "k1")
    second = send_email(provider, "k1")
    assert (first[0], second[0]) == (200, 200)
    assert first[2] == second[2]
    assert second[1]["idempotent-replayed"] == "true"
    assert provider.book.effects_per_key() == {"k1": 1}
    assert len(provider.book.requests("k1")) == 2
    assert [line.meaning for line in provider.book.answers("k1")] == ["accepted", "replayed"]


def test_after_the_window_a_replay_is_a_second_effect(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    send_email(provider, "k1")
    provider.change(advance_s=86_400)
    send_email(provider, "k1")
    assert provider.book.duplicates() == {"k1": 2}


def test_a_changed_body_under_a_known_key_is_a_mismatch(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    send_email(provider, "k1")
    status, _, body = send_email(provider, "k1", subject="other")
    assert (status, body["name"]) == (409, "invalid_idempotent_request")
    assert provider.book.effects_per_key() == {"k1": 1}
    assert len(provider.book.variants()["k1"]) == 2


def test_a_key_is_in_progress_until_the_work_is_done(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    provider.change(work_s=1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(send_email, provider, "k1")
        wait_until(lambda: provider.book.requests("k1"), timeout_s=5, what="the first request")
        assert send_email(provider, "k1")[2]["name"] == "concurrent_idempotent_requests"
        assert first.result()[0] == 200


def test_work_that_has_begun_ends_although_the_caller_is_gone(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    provider.change(work_s=0.3)
    with pytest.raises(TimeoutError):
        send_email(provider, "k1", timeout=0.1)
    wait_until(lambda: provider.book.effects("k1"), timeout_s=5, what="the effect")


@pytest.mark.parametrize(("fault", "effects"), [(Fault.ACCEPT_THEN_DROP, 1), (Fault.HALF_ANSWER, 1)])
def test_an_accepted_request_without_an_answer_is_in_the_book(
    start_provider: StartProvider, fault: Fault, effects: int
) -> None:
    provider = start_provider("resend")
    provider.spoil(fault)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        send_email(provider, "k1")
    assert len(provider.book.effects("k1")) == effects
    assert provider.announced("accepted", key="k1")
    assert send_email(provider, "k1")[0] == 200
    assert provider.book.effects_per_key() == {"k1": 1}


def test_a_request_dropped_before_receipt_is_not_in_the_book(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    provider.spoil(Fault.DROP_BEFORE_RECEIPT)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        send_email(provider, "k1")
    assert provider.book.requests() == []
    assert provider.announced("dropped", key="k1")


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.REFUSE, 400),
        (Fault.THROTTLE, 429),
        (Fault.SERVER_ERROR, 500),
        (Fault.REDIRECT, 307),
        (Fault.IN_PROGRESS, 409),
        (Fault.MISMATCH, 409),
    ],
)
def test_an_answer_without_an_effect_leaves_the_key_as_new(
    start_provider: StartProvider, fault: Fault, status: int
) -> None:
    provider = start_provider("resend")
    provider.spoil(fault, retry_after="7")
    answer = send_email(provider, "k1")
    assert answer[0] == status
    assert answer[1].get("Retry-After") == ("7" if fault is Fault.THROTTLE else None)
    assert provider.book.effects() == []
    assert send_email(provider, "k1")[0] == 200


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.EMPTY, Fault.SERVER_ERROR_AFTER_EFFECT, Fault.SLOW_DRIP])
def test_a_bad_answer_after_the_effect_is_followed_by_the_first_good_one(
    start_provider: StartProvider, fault: Fault
) -> None:
    provider = start_provider("resend")
    provider.spoil(fault)
    first = send_email(provider, "k1")
    assert (first[0] == 500) == (fault is Fault.SERVER_ERROR_AFTER_EFFECT)
    assert send_email(provider, "k1")[1]["idempotent-replayed"] == "true"
    assert provider.book.effects_per_key() == {"k1": 1}


def test_a_cached_server_error_is_replayed(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    provider.spoil(Fault.SERVER_ERROR_CACHED)
    assert [send_email(provider, "k1")[0] for _ in range(3)] == [500, 500, 500]
    assert provider.book.effects() == []


@pytest.mark.parametrize(("how", "fault"), [("drop", Fault.ACCEPT_THEN_HANG), ("answer", Fault.ACCEPT_THEN_HANG)])
def test_a_held_answer_waits_for_the_supervisor(start_provider: StartProvider, how: str, fault: Fault) -> None:
    provider = start_provider("resend")
    provider.spoil(fault)
    with ThreadPoolExecutor() as pool:
        held = pool.submit(send_email, provider, "k1")
        provider.program.wait_for("accepted", key="k1")
        assert not held.done()
        assert provider.release(how) == 1
        if how == "answer":
            assert held.result()[0] == 200
        else:
            assert isinstance(held.exception(), http.client.HTTPException | ConnectionError)
    assert provider.book.effects_per_key() == {"k1": 1}


def test_a_comment_is_found_by_its_marker_on_every_page(start_provider: StartProvider) -> None:
    provider = start_provider("github")
    provider.change(page_size=3)
    for number in range(10):
        assert comment(provider, f"k{number}")[0] == 201
    comment(provider, "elsewhere", issue=8)
    found = all_comments(provider)
    assert len(found) == 10
    assert [line.provider_id for line in provider.book.effects()][:10] == [str(item["id"]) for item in found]
    assert all_comments(provider, since="2999-01-01T00:00:00Z") == []


def test_a_lagging_lookup_shows_a_thing_only_later(start_provider: StartProvider) -> None:
    provider = start_provider("github")
    provider.change(lookup_lag_s=20)
    comment(provider, "k1")
    assert all_comments(provider) == []
    provider.change(advance_s=20)
    assert len(all_comments(provider)) == 1


def test_another_account_sees_nothing_and_shares_no_keys(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    send_email(provider, "k1")
    body = json.dumps(EMAIL).encode()
    assert ask(provider, "POST", "/emails", body, Idempotency_Key="k1", Authorization="Bearer other")[0] == 200
    assert provider.book.duplicates() == {"k1": 2}
    assert ask(provider, "POST", "/emails", body, Idempotency_Key="k2", Authorization="")[0] == 401


def test_the_newest_order_wins_and_is_spent(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    provider.spoil(Fault.SERVER_ERROR, times=None)
    provider.spoil(Fault.THROTTLE, key="k1", nth=1)
    assert [send_email(provider, "k1")[0] for _ in range(2)] == [429, 500]
    assert send_email(provider, "k2")[0] == 500


def test_the_book_cannot_be_changed(start_provider: StartProvider) -> None:
    provider = start_provider("resend")
    send_email(provider, "k1")
    with closing(sqlite3.connect(provider.book.path)) as connection:
        for statement in ("delete from effects", "update requests set ref = 'x'"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


def test_slack_shows_metadata_only_when_asked_and_a_200_may_mean_no(start_provider: StartProvider) -> None:
    provider = start_provider("slack")
    mark = {"event_type": "outbox_action", "event_payload": {"outbox_key": "k1"}}
    body = json.dumps({"channel": "C1", "text": "hi", "metadata": mark}).encode()
    sent = ask(provider, "POST", "/api/chat.postMessage", body)[2]
    assert (sent["ok"], sent["channel"]) == (True, "C1")
    history = "/api/conversations.history?channel=C1&oldest=0&limit=15"
    assert "metadata" not in ask(provider, "POST", history)[2]["messages"][0]
    (found,) = ask(provider, "POST", history, b"include_all_metadata=true")[2]["messages"]
    assert (found["ts"], found["metadata"]) == (sent["ts"], mark)
    assert ask(provider, "POST", history.replace("C1", "C2"))[2]["messages"] == []
    provider.spoil(Fault.REFUSE)
    status, _, refused = ask(provider, "POST", "/api/chat.postMessage", body)
    assert (status, refused["ok"]) == (200, False)


def test_stripe_takes_forms_keeps_keys_and_lists_by_cursor(start_provider: StartProvider) -> None:
    provider = start_provider("stripe")
    provider.change(page_size=2)
    for number in range(5):
        body = f"payment_intent=pi_1&amount=5&metadata[outbox_key]=k{number}".encode()
        assert ask(provider, "POST", "/v1/refunds", body, Idempotency_Key=f"k{number}")[0] == 200
    assert ask(provider, "POST", "/v1/refunds", b"payment_intent=pi_2", Idempotency_Key="k0")[0] == 400
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = ask(provider, "GET", f"/v1/refunds?limit=100&payment_intent=pi_1{cursor}")[2]
        found += [item["metadata"]["outbox_key"] for item in page["data"]]
        cursor = f"&starting_after={page['data'][-1]['id']}" if page["has_more"] else None
    assert found == ["k4", "k3", "k2", "k1", "k0"]


def test_a_pagerduty_alert_merges_until_it_is_gone(start_provider: StartProvider) -> None:
    provider = start_provider("pagerduty")

    def trigger(summary: str) -> Seen:
        event = {"routing_key": "r", "dedup_key": "k1", "event_action": "trigger", "payload": {"summary": summary}}
        return ask(provider, "POST", "/v2/enqueue", json.dumps(event).encode())

    assert [trigger(text)[2]["dedup_key"] for text in ("one", "two")] == ["k1", "k1"]
    assert provider.book.effects_per_key() == {"k1": 1}
    gone = {"operation": "events.enqueue", "account": provider.book.effects("k1")[0].account, "key": "k1"}
    assert provider.program.post("/_trial/forget", gone)[0] == 200
    trigger("again")
    assert provider.book.duplicates() == {"k1": 2}
