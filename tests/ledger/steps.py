"""Every step that a function takes: how an action comes to where it starts, and the call that takes it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from outbox_relay.states import Actor, DeliveryState, Event, ExecutionState, State
from tests.ledger.factories import Stage, expire, in_one_hour, put_into

Step = Callable[[Stage, State, State], UUID]
"""Given the state to start from and the one to reach, the action after the step."""


def take_claimed(stage: Stage, origin: State, _: State) -> UUID:
    action = put_into(stage, origin)
    assert action in stage.claim()["ids"]
    return action


def take_released(stage: Stage, _: State, target: State) -> UUID:
    action = put_into(stage, target)
    assert stage.report(action, stage.claim()["token"], "released") == "applied"
    return action


def take_no_effect(stage: Stage, _: State, target: State) -> UUID:
    limit = 0 if target.execution is ExecutionState.ON_HOLD else 3
    stage.declare({"retry_limit": limit})
    return stage.attempt("no_effect")


def reported(event: str, **more: object) -> Step:
    return lambda stage, _origin, _target: stage.attempt(event, **more)


def expired_by(role: str) -> Step:
    return lambda stage, _origin, _target: stage.expired(role=role)


def take_decision(decision: str) -> Step:
    def step(stage: Stage, origin: State, _: State) -> UUID:
        action = put_into(stage, origin)
        held = origin.execution is ExecutionState.ON_HOLD
        stage.decide(stage.review_of(action) if held else stage.ask(action), decision)
        return action

    return step


def take_cancelled(stage: Stage, origin: State, _: State) -> UUID:
    action = put_into(stage, origin)
    assert stage.cancel(action) == "cancelled"
    return action


def take_deadline(stage: Stage, origin: State, _: State) -> UUID:
    deadline = in_one_hour(stage)
    if origin.execution is ExecutionState.ACTION_CREATED:
        return expire(stage, stage.insert(deliver_by=deadline))
    action, token = stage.started(deliver_by=deadline)
    event = "held" if origin.execution is ExecutionState.ON_HOLD else "no_effect"
    assert stage.report(action, token, event) == "applied"
    return expire(stage, action)


def proven_by(event: str) -> Step:
    """The provider has it, as the reconciler learned in one of several ways."""

    def step(stage: Stage, origin: State, _: State) -> UUID:
        action = put_into(stage, origin)
        if origin.delivery is DeliveryState.DELIVERY_PENDING:
            stage.late_acceptance(action)
        assert stage.resolve(action, event, provider_id="late-1") == "applied"
        return action

    return step


def absent_by(event: str) -> Step:
    """The provider does not have it; what follows depends on the deadline and on a cancel request."""

    def step(stage: Stage, _: State, target: State) -> UUID:
        expires = {"deliver_by": in_one_hour(stage)} if target.execution is ExecutionState.EXPIRED else {}
        action, token = stage.started(**expires)
        stage.report(action, token, "response_lost")
        if target.execution is ExecutionState.CANCELLED:
            assert stage.cancel(action) == "cancel_requested"
        if expires:
            stage.advance(2 * 3600)
        resend = target.execution is ExecutionState.RETRY_SCHEDULED
        assert stage.resolve(action, event, resend=resend) == "applied"
        return action

    return step


STEPS: dict[tuple[Event, Actor], Step] = {
    (Event.CLAIMED, Actor.RELAY): take_claimed,
    (Event.RELEASED, Actor.RELAY): take_released,
    (Event.ACCEPTED, Actor.RELAY): reported("accepted", provider_id="id-1"),
    (Event.REFUSED, Actor.RELAY): reported("refused"),
    (Event.NO_EFFECT, Actor.RELAY): take_no_effect,
    (Event.HELD, Actor.RELAY): reported("held"),
    (Event.RESPONSE_LOST, Actor.RELAY): reported("response_lost"),
    (Event.CLAIM_EXPIRED, Actor.RELAY): expired_by("relay"),
    (Event.CLAIM_EXPIRED, Actor.RECONCILER): expired_by("reconciler"),
    (Event.HOLD_RELEASED, Actor.OPERATOR): take_decision("release"),
    (Event.CANCELLED, Actor.AGENT): take_cancelled,
    (Event.CANCELLED, Actor.OPERATOR): take_decision("cancel"),
    (Event.DEADLINE_PASSED, Actor.RECONCILER): take_deadline,
    (Event.FOUND, Actor.RECONCILER): proven_by("found"),
    (Event.REPLAY_ACCEPTED, Actor.RECONCILER): proven_by("replay_accepted"),
    (Event.RECEIPT_ARRIVED, Actor.RECONCILER): proven_by("receipt_arrived"),
    (Event.LATE_ACCEPTANCE, Actor.RECONCILER): proven_by("late_acceptance"),
    (Event.PROVEN_ABSENT, Actor.RECONCILER): absent_by("proven_absent"),
    (Event.REPLAY_REFUSED, Actor.RECONCILER): absent_by("replay_refused"),
    (Event.DECIDED_CONFIRMED, Actor.OPERATOR): take_decision("confirmed"),
    (Event.DECIDED_FAILED, Actor.OPERATOR): take_decision("failed"),
    (Event.DECIDED_ABANDONED, Actor.OPERATOR): take_decision("abandoned"),
    (Event.DECIDED_RESEND, Actor.OPERATOR): take_decision("resend"),
}
