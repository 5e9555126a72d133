"""One status with two meanings, and answers that point elsewhere (cases O8 and O9)."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import psycopg
import pytest

from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HOLDING_PROFILE, wait_until
from tests.faults.troubles import PATIENT, SETTLE_S, keys, requests_per_key, review_of, series, wait_for
from tests.plugins.processes import SetStage

pytestmark = pytest.mark.timeout(300)  # several waits in a row, each of them long on a loaded machine

OTHER_LOOPBACK = "127.0.0.2"
"""Stands for an address that no account names."""


def test_a_conflict_that_says_running_waits_and_one_that_says_another_body_asks_a_person(scenario: SetStage) -> None:
    """O8: both are a 409. Neither is a failed call, and neither ever leads to a new key."""
    stage = scenario("resend", profile=HOLDING_PROFILE)
    resend = stage.providers["resend"]
    resend.spoil(Fault.IN_PROGRESS, key="running", times=3)
    resend.spoil(Fault.MISMATCH, key="mismatch", times=None)
    stage.start_relay()
    reconciler = stage.start_reconciler()
    stage.add("resend", ["running", "mismatch"])
    stage.wait_settled(timeout_s=SETTLE_S)
    mismatch, running = stage.standings()
    assert (running.delivery_state, running.resolution, running.attempts) == ("reconciled_confirmed", "replay", 4)
    assert resend.book.effects_per_key() == {"running": 1}
    assert {line.wire_key for line in resend.book.requests()} == {"running", "mismatch"}
    assert not resend.book.variants()
    assert (mismatch.delivery_state, mismatch.attempts) == ("delivery_unknown", 1)
    reason, owner, next_step = review_of(stage, "mismatch")
    assert (reason, owner) == ("key_mismatch", "trial-oncall")
    assert "new key" in next_step
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        rows = connection.execute(
            "select e.body_sha256, e.proves from outbox.evidence e join outbox.outbound_actions a using (action_id)"
            " where a.idempotency_key = 'mismatch' and e.kind = 'response'"
        ).fetchall()
    (sent,) = resend.book.requests("mismatch")
    assert rows == [(sent.body_sha256, "arrival")], "the person sees what we sent, as the provider saw it"
    assert series(reconciler, "outbox_reviews_opened_total", "key_mismatch") == 1, "what the alert rests on"


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """A listener at another address, and everything that reached it."""
    seen: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            seen.append(self.rfile.readline().decode("latin-1"))
            self.close_connection = True

    with http.server.ThreadingHTTPServer((OTHER_LOOPBACK, 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever, name="elsewhere", daemon=True)
        thread.start()
        yield f"http://{OTHER_LOOPBACK}:{server.server_port}/latest/meta-data", seen
        server.shutdown()


def test_a_redirect_is_not_followed_and_its_owner_hears_of_the_wrong_address(
    scenario: SetStage, elsewhere: tuple[str, list[str]]
) -> None:
    """O9: to an unchecked address and to another provider that is configured. Neither gets a request or a secret."""
    url, seen = elsewhere
    stage = scenario("resend", "standard-webhooks", "github", profile=PATIENT)
    github = stage.providers["github"]
    targets = {"resend": f"{github.url}/repos/example/shop/issues/42/comments", "standard-webhooks": url}
    for provider, location in targets.items():
        place = stage.providers[provider]
        place.spoil(Fault.REDIRECT, times=None, key_prefix=f"{provider}/302", status=302, location=location)
        place.spoil(Fault.REDIRECT, times=None, key_prefix=f"{provider}/307", status=307, location=location)
        stage.add(provider, [f"{provider}/302", f"{provider}/307"])
    relay = stage.start_relay()
    stage.start_reconciler()
    stage.wait_settled(timeout_s=SETTLE_S)
    assert seen == []
    assert github.book.requests(kind=None) == []
    assert [place.book.effects() for place in stage.providers.values()] == [[], [], []]
    for key in ("resend/302", "resend/307"):
        assert review_of(stage, key)[:2] == ("replay_held", "trial-oncall"), "long before the action is old"
    for key in ("standard-webhooks/302", "standard-webhooks/307"):
        assert review_of(stage, key)[:2] == ("nothing_to_ask", "trial-oncall")
    assert set(requests_per_key(stage.providers["standard-webhooks"].book).values()) == {1}
    # The account is at fault, not the action: its backlog is kept back.
    stage.add("resend", keys("later", 20))
    wait_until(
        lambda: series(relay, "outbox_provider_circuit_open", 'provider="resend"') == 1,
        timeout_s=SETTLE_S,
        what="the breaker",
    )
    # The address is put right: what waited goes out. The doubtful ones are replayed when they are looked at again.
    for place in stage.providers.values():
        place.spoil(Fault.NONE, times=None)
    wait_for(stage, 20, "delivery_confirmed", prefix="later/")
    assert set(stage.providers["resend"].book.effects_per_key().values()) == {1}
