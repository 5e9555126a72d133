"""What the claim loop asks for and when it looks: the pure parts, with a clock in hand."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from outbox_relay.dispatch.demand import CLAIM_MAX, Demands
from outbox_relay.dispatch.limits import AccountGate, Effect, Limits
from outbox_relay.dispatch.timers import LOOK_AHEAD_MIN_S, POLL_FIRST_S, POLL_MAX_S, Timers
from outbox_relay.ledger.records import ActionId, Claim, ClaimToken

RESEND, GITHUB = ("resend", "default"), ("github", "bot")


def demands(slots: int = 4) -> Demands:
    return Demands({key: AccountGate(Limits(slots=slots), now=0) for key in (RESEND, GITHUB)})


def claim(account: tuple[str, str] = RESEND) -> Claim:
    return Claim(
        action_id=ActionId(UUID(int=1)),
        claim_token=ClaimToken(UUID(int=2)),
        attempt=1,
        provider=account[0],
        account=account[1],
        operation="emails.send",
        mode="live",
        idempotency_key="k",
        wire_key="k",
        recipient=None,
        payload="{}",
        contract_version="1+0",
        base_url="http://127.0.0.1",
        account_identity="me",
        ordering_key=None,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        first_attempt_at=None,
        due_age_s=0.0,
        traceparent=None,
    )


def test_nothing_is_asked_for_without_a_reason() -> None:
    assert demands().take(0) == []


def test_a_wakeup_asks_for_as_many_as_there_are_free_slots() -> None:
    asked = demands(slots=4)
    asked.wake([RESEND])
    (order,) = asked.take(0)
    assert (order.account, order.demand.slots) == (RESEND, 4)
    assert asked.take(0) == []


def test_wakeups_of_accounts_that_are_not_ours_are_ignored() -> None:
    asked = demands()
    assert not asked.wake([("stripe", "default")])
    assert asked.take(0) == []


def test_an_account_that_got_all_it_asked_for_is_asked_again_when_a_slot_is_free() -> None:
    asked = demands(slots=2)
    asked.wake([RESEND])
    orders = asked.take(0)
    asked.settle(orders, [claim(), claim()])
    assert asked.take(0) == [], "no slot, no claim"
    assert asked.hungry(RESEND)
    asked.gates[RESEND].finish(Effect.HEALTHY, orders[0].permit, 0)
    assert asked.take(0)[0].demand.slots == 1


def test_an_account_that_got_less_is_left_alone_until_the_next_wakeup() -> None:
    asked = demands(slots=2)
    asked.wake([RESEND])
    asked.settle(asked.take(0), [claim()])
    assert not asked.hungry(RESEND)
    assert asked.gates[RESEND].in_flight == 1


def test_a_wakeup_during_the_claim_is_not_lost() -> None:
    asked = demands(slots=2)
    asked.wake([RESEND])
    orders = asked.take(0)
    asked.wake([RESEND])
    asked.settle(orders, [])
    assert asked.take(0)


def test_one_accounts_trouble_does_not_hold_another_back() -> None:
    asked = demands(slots=8)
    for _ in range(5):
        gate = asked.gates[RESEND]
        gate.finish(Effect.TROUBLE, gate.start(1, 0), 0)
    asked.wake()
    assert [order.account for order in asked.take(0)] == [GITHUB]
    assert asked.opens_in(0) == pytest.approx(1.0)


def test_one_claim_stays_small_however_many_slots_there_are() -> None:
    asked = demands(slots=10_000)
    asked.wake([RESEND])
    assert asked.take(0)[0].demand.slots == CLAIM_MAX


def test_with_kafka_only_the_sweep_looks_unasked() -> None:
    timers = Timers(sweep_s=5, polling=False, now=0)
    assert timers.ring(0) == ["sweep"]
    timers.looking_ahead(0)
    timers.next_due(None, 0)
    assert 4.5 <= timers.next_ring() <= 5.5
    assert timers.ring(4) == []


def test_without_kafka_polls_are_short_after_work_and_long_when_idle() -> None:
    timers = Timers(sweep_s=60, polling=True, now=0)
    now, gaps = 0.0, []
    for _ in range(10):
        timers.ring(now)
        assert not timers.look_ahead_wanted(now)
        gaps.append(timers.next_ring() - now)
        now = timers.next_ring()
    assert gaps[0] == pytest.approx(POLL_FIRST_S)
    assert gaps[-1] == pytest.approx(POLL_MAX_S)
    timers.found_work(now)
    assert timers.next_ring() - now <= POLL_FIRST_S


def test_a_due_time_rings_at_that_time() -> None:
    timers = Timers(sweep_s=60, polling=False, now=0)
    timers.ring(0)
    timers.looking_ahead(0)
    timers.next_due(3.0, 0)
    assert timers.ring(2.9) == []
    assert timers.ring(3.1) == ["due"]


def test_a_due_action_that_cannot_be_claimed_does_not_spin() -> None:
    """Blocked behind its ordering key, or under another relay's lock: the ledger says 0 s again and again."""
    timers = Timers(sweep_s=60, polling=False, now=0)
    now, looks = 0.0, 0
    timers.ring(0)
    while now < 10:
        timers.ring(now)
        if timers.look_ahead_wanted(now):
            looks += 1
            timers.looking_ahead(now)
            timers.next_due(0.0, now)
        now = max(now + 1e-6, timers.next_ring())
    assert looks <= 10 / LOOK_AHEAD_MIN_S + 2


def test_a_few_free_slots_of_a_busy_account_wait_a_moment_for_more() -> None:
    gate = AccountGate(Limits(slots=8), now=0)
    asked = Demands({RESEND: gate}, hold_s=0.003)
    asked.wake()
    (order,) = asked.take(0)
    asked.settle([order], [claim()] * 8)
    gate.finish(Effect.HEALTHY, order.permit, 1)
    assert asked.worth_a_look(RESEND)
    assert asked.take(1) == []
    assert not asked.worth_a_look(RESEND)
    assert asked.opens_in(1) == pytest.approx(0.003)
    gate.finish(Effect.HEALTHY, order.permit, 1.001)
    assert asked.worth_a_look(RESEND)
    assert asked.take(1.001)[0].demand.slots == 2
    assert asked.opens_in(1.001) is None


def test_a_single_free_slot_beside_hanging_ones_is_used_all_the_same() -> None:
    gate = AccountGate(Limits(slots=64), now=0)
    asked = Demands({RESEND: gate}, hold_s=0.003)
    asked.wake()
    (order,) = asked.take(0)
    asked.settle([order], [claim()] * 64)
    gate.finish(Effect.HEALTHY, order.permit, 1)
    assert asked.take(1) == []
    assert asked.take(1.004)[0].demand.slots == 1


def test_a_pause_during_the_wait_for_more_does_not_spin() -> None:
    gate = AccountGate(Limits(slots=64), now=0)
    asked = Demands({RESEND: gate}, hold_s=0.003)
    asked.wake()
    (order,) = asked.take(0)
    asked.settle([order], [claim()] * 64)
    gate.finish(Effect.HEALTHY, order.permit, 1)
    assert asked.take(1) == []
    gate.finish(Effect.THROTTLED, order.permit, 1.001, retry_after_s=30)
    assert asked.take(1.01) == []
    assert asked.opens_in(1.01) is None


def test_polls_stay_short_while_claims_find_work_now_and_then() -> None:
    timers = Timers(sweep_s=60, polling=True, now=0)
    now = 0.0
    for _ in range(20):
        timers.found_work(now)
        now = timers.next_ring()
        timers.ring(now)
        assert timers.next_ring() - now <= POLL_FIRST_S + 1e-9
