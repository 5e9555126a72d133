"""Time-outs and deaths in mid-send: who may try again, and with what (cases O1 and O2)."""

from __future__ import annotations

import pytest

from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HOLDING_PROFILE, wait_until
from tests.faults.troubles import HOLDING, SETTLE_S, confirmed, keys, requests_per_key, row_of, wait_for
from tests.plugins.processes import SetStage

pytestmark = pytest.mark.timeout(300)  # several waits in a row, each of them long on a loaded machine

TRIALS = 100
KEYED, WITH_LOOKUP, BLIND = "resend", "github", "standard-webhooks"


def test_a_send_that_timed_out_is_never_repeated_without_its_key(scenario: SetStage) -> None:
    """O1: accepted, and no answer before the deadline. The retry of a tool call would be a second message."""
    stage = scenario(KEYED, WITH_LOOKUP, BLIND, profile=HOLDING)
    for provider, place in stage.providers.items():
        place.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=1)
        stage.add(provider, keys(provider, TRIALS))
    stage.start_relay(OUTBOX_SLOTS=str(TRIALS))
    wait_for(stage, 3 * TRIALS, "delivery_unknown")
    stage.start_reconciler()
    stage.wait_settled(timeout_s=SETTLE_S)
    books = {provider: place.book for provider, place in stage.providers.items()}
    for provider, book in books.items():
        assert book.effects_per_key() == dict.fromkeys(keys(provider, TRIALS), 1)
        assert not book.variants(), "every attempt had the same key, bytes, URL and account"
    assert requests_per_key(books[KEYED]) == dict.fromkeys(keys(KEYED, TRIALS), 2)
    assert {line.wire_key for line in books[KEYED].requests()} == set(keys(KEYED, TRIALS))
    assert requests_per_key(books[WITH_LOOKUP]) == dict.fromkeys(keys(WITH_LOOKUP, TRIALS), 1)
    assert requests_per_key(books[BLIND]) == dict.fromkeys(keys(BLIND, TRIALS), 1)
    for each in stage.standings():
        provider = each.key.partition("/")[0]
        (effect,) = books[provider].effects(each.key)
        if provider == BLIND:
            assert each.in_review, each
        else:
            assert confirmed(each), each
            assert each.provider_id == effect.provider_id


def test_a_restarted_worker_of_the_same_name_keeps_no_dead_claim_alive(scenario: SetStage) -> None:
    """O2: a claim belongs to an attempt's token. There is no registry of workers whose row could be missing."""
    stage = scenario(KEYED, profile=HOLDING_PROFILE)
    provider, held = stage.providers[KEYED], keys("held", 5)
    provider.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=1, key_prefix="held/")
    doomed = stage.start_relay("relay-0")
    stage.add(KEYED, held)
    wait_until(lambda: len(provider.announced("accepted")) == 5, timeout_s=SETTLE_S, what="five held answers")
    doomed.kill()
    heir = stage.start_relay("relay-0")
    wait_for(stage, 5, "delivery_unknown")
    latest_s, workers = row_of(
        stage,
        "select max(extract(epoch from e.occurred_at - a.first_attempt_at)), count(*) from outbox.action_events e"
        " join outbox.outbound_actions a using (action_id) where e.data::json ->> 'reason' = 'claim_expired'",
    )
    assert workers == 5
    # The lease and two sweeps, and what a busy machine adds.
    assert float(latest_s) < HOLDING_PROFILE.unknown_within_s + 20
    stage.add(KEYED, keys("later", 10))
    wait_for(stage, 10, "delivery_confirmed")
    assert heir.exit_code is None
    assert requests_per_key(provider.book) == dict.fromkeys([*held, *keys("later", 10)], 1), "the heir sends none again"
    stage.start_reconciler()
    stage.wait_settled(timeout_s=SETTLE_S)
    assert all(confirmed(each) for each in stage.standings())
    assert set(provider.book.effects_per_key().values()) == {1}
