"""Answers that others choked on: unreadable, endless, poisonous, or a success that means no (O4, O5, O11, O15, O16)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import psycopg
import pytest

from outbox_relay.attempt.cleaning import EXCERPT_LIMIT
from outbox_relay.trial.book import RequestLine
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import TEST_PROFILE
from outbox_relay.trial.scenario import Scenario
from tests.faults.troubles import PATIENT, SETTLE_S, confirmed, keys, requests_per_key, series, wait_for
from tests.plugins.processes import SetStage

pytestmark = pytest.mark.timeout(300)  # several waits in a row, each of them long on a loaded machine

KEYED, WITH_LOOKUP, BLIND = "resend", "github", "standard-webhooks"
FIVE_MB = 5_000_000
STATUSES = (200, 201, 202, 204)
BODIES: Mapping[str, tuple[Fault, str | None]] = {
    "empty": (Fault.EMPTY, None),
    "truncated": (Fault.HALF_ANSWER, None),
    "html": (Fault.GARBAGE, "<html><body>OK</body></html>"),
    "huge": (Fault.GARBAGE, json.dumps({"padding": "x" * FIVE_MB, "id": "e_1"})),
}


def test_a_poisonous_error_text_is_stored_and_spoils_no_batch(scenario: SetStage) -> None:
    """O4: NUL, a lone surrogate and 5 MB in a refusal; twenty good actions are under way with it."""
    stage = scenario(KEYED, profile=PATIENT)
    poison = '{"message": "no\\u0000way \\ud800 \x00' + "x" * FIVE_MB + '"}'
    stage.providers[KEYED].spoil(Fault.REFUSE, key="poison", times=None, status=400, body=poison)
    stage.add(KEYED, ["poison", *keys("good", 20)])
    relay = stage.start_relay()
    wait_for(stage, 21, "dispatch_finished")
    wait_for(stage, 20, "delivery_confirmed", prefix="good/")
    wait_for(stage, 1, "delivery_rejected", prefix="poison")
    assert requests_per_key(stage.providers[KEYED].book) == dict.fromkeys(["poison", *keys("good", 20)], 1)
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        kept = connection.execute(
            "select e.excerpt, a.last_error from outbox.evidence e join outbox.outbound_actions a using (action_id)"
            " where a.idempotency_key = 'poison'"
        ).fetchall()
    assert kept
    for text in (text for row in kept for text in row if text is not None):
        assert len(text) <= EXCERPT_LIMIT
        assert "\x00" not in text
    assert not relay.events("batch_refused")


def test_retry_after_pauses_its_account_as_asked_and_ends_no_relay(scenario: SetStage) -> None:
    """O5: dates, years and digits of every kind. What cannot be read leaves the backoff; others do not wait."""
    asked = {
        "resend": "Sat, 01 Jan 10000 00:00:00 GMT",
        "github": "9" * 400,
        "stripe": "-5",
        "slack": "",
        "pagerduty": "Mon, 30 Nov 2015 12:00:00 GMT",
        "standard-webhooks": "1.5",
    }
    capped = {"resend", "github"}
    stage = scenario(*asked, profile=PATIENT)
    for provider, value in asked.items():
        stage.providers[provider].spoil(Fault.THROTTLE, retry_after=value)
        stage.add(provider, [provider])
    relay = stage.start_relay()
    wait_for(stage, len(asked) - len(capped), "delivery_confirmed")
    stage.add("stripe", ["stripe/later"])
    wait_for(stage, 1, "delivery_confirmed", prefix="stripe/later")
    for provider in capped:
        wait_for(stage, 1, "retry_scheduled", prefix=provider)
        assert len(stage.providers[provider].book.requests()) == 1, "left alone as long as our cap"
        assert series(relay, "outbox_provider_paused", f'provider="{provider}"') == 1
    waits = {provider: gap_s(stage.providers[provider].book.requests(provider)) for provider in asked.keys() - capped}
    assert waits["standard-webhooks"] >= 1.5, "never less than asked"
    assert set(stage.providers["pagerduty"].book.effects_per_key().values()) == {1}
    assert relay.exit_code is None
    assert not relay.events("attempt_failed")


def gap_s(requests: list[RequestLine]) -> float:
    """Seconds between the first and the second request."""
    first, second = (datetime.fromisoformat(line.at).astimezone(UTC) for line in requests)
    return (second - first).total_seconds()


def test_an_unreadable_success_is_never_a_failure_and_never_sent_anew(scenario: SetStage) -> None:
    """O11: every effect happened, and no answer says so."""
    stage = scenario(KEYED, WITH_LOOKUP, BLIND, profile=PATIENT)
    stage.start_reconciler()
    relay = stage.start_relay()
    for provider, place in stage.providers.items():
        for status in STATUSES:
            for name, (fault, body) in BODIES.items():
                given = {} if body is None else {"body": body}
                place.spoil(fault, key=f"{provider}/{status}/{name}", nth=1, times=None, status=status, **given)
        stage.add(provider, [f"{provider}/{status}/{name}" for status in STATUSES for name in BODIES])
    stage.wait_settled(timeout_s=SETTLE_S)
    for place in stage.providers.values():
        assert set(place.book.effects_per_key().values()) == {1}
    assert set(requests_per_key(stage.providers[BLIND].book).values()) == {1}
    assert set(requests_per_key(stage.providers[WITH_LOOKUP].book).values()) == {1}
    assert set(requests_per_key(stage.providers[KEYED].book).values()) == {2}, "the replay gives what was lost"
    for each in stage.standings():
        provider, _, name = each.key.split("/")
        if provider == BLIND and name == "truncated":
            assert each.in_review, "an answer that broke off is no answer"
        else:
            assert confirmed(each), each
    assert series(relay, "outbox_rejections_total") == 0


def test_an_answer_in_drops_ends_at_the_total_deadline_and_within_the_lease(scenario: SetStage) -> None:
    """O15: a byte now and then resets a timeout per read for ever; ours is over everything."""
    stage = scenario(KEYED, BLIND, profile=PATIENT)
    for place in stage.providers.values():
        place.spoil(Fault.SLOW_DRIP, times=None, nth=1, delay_s=2)
    relay = stage.start_relay()
    for provider in stage.providers:
        stage.add(provider, keys(provider, 3))
    wait_for(stage, 3, "delivery_unknown", prefix=KEYED)
    for line in relay.events("attempt", finding="unknown"):
        seconds = float(str(line["duration_ms"])) / 1000
        assert PATIENT.deadline_s - 0.5 <= seconds < PATIENT.lease_s, line
    assert len(relay.events("attempt", finding="unknown")) >= 3
    assert not relay.events("claim_lost")
    assert series(relay, "outbox_expired_claims_total") == 0
    stage.start_reconciler()
    stage.wait_settled(timeout_s=SETTLE_S)
    for place in stage.providers.values():
        assert set(place.book.effects_per_key().values()) == {1}


def test_a_200_that_means_no_counts_as_no_acceptance(scenario: SetStage) -> None:
    """O16: nothing was done, and the status says that all is well. The contract needs an id, so nobody believes it."""
    stage = scenario(KEYED, "slack", profile=TEST_PROFILE)
    said = {"field": '{"error": "throttled"}', "text": "Too many requests, slow down"}
    for name, body in said.items():
        for provider, place in stage.providers.items():
            place.spoil(Fault.REFUSE, times=None, nth=1, key_prefix=f"{provider}/{name}", status=200, body=body)
    no = '{"ok": false, "error": "channel_not_found"}'
    stage.providers["slack"].spoil(Fault.REFUSE, times=None, key="slack/no", status=200, body=no)
    for provider in stage.providers:
        no_key = ["slack/no"] if provider == "slack" else []
        stage.add(provider, [*no_key, *(key for name in said for key in keys(f"{provider}/{name}", 2))])
    relay = stage.start_relay()
    wait_for(stage, 9, "dispatch_finished")
    assert series(relay, "outbox_acceptances_total") == 0
    assert [place.book.effects() for place in stage.providers.values()] == [[], []]
    stage.start_reconciler()
    stage.wait_settled(timeout_s=SETTLE_S)
    judge_no(stage)


def judge_no(stage: Scenario) -> None:
    """Replayed with its key where there is one, put before a person where there is none."""
    book = stage.providers[KEYED].book
    assert not book.variants()
    for each in stage.standings():
        if each.key == "slack/no":
            assert each.delivery_state == "delivery_rejected"
        elif each.key.startswith(KEYED):
            assert (each.delivery_state, each.resolution) == ("reconciled_confirmed", "replay")
            assert len(book.effects(each.key)) == 1
        else:
            assert each.in_review, each
            assert len(stage.providers["slack"].book.requests(each.key)) == 1
