"""The states of an action and the steps between them.

Generated from schemas/states.toml by tools/generate.py. Do not edit.
"""
# ruff: noqa: E501

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ExecutionState(StrEnum):
    """What we did."""

    ACTION_CREATED = "action_created"
    DISPATCH_STARTED = "dispatch_started"
    RETRY_SCHEDULED = "retry_scheduled"
    ON_HOLD = "on_hold"
    DISPATCH_FINISHED = "dispatch_finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class DeliveryState(StrEnum):
    """What is known of the provider."""

    DELIVERY_PENDING = "delivery_pending"
    DELIVERY_CONFIRMED = "delivery_confirmed"
    DELIVERY_REJECTED = "delivery_rejected"
    DELIVERY_UNKNOWN = "delivery_unknown"
    RECONCILED_CONFIRMED = "reconciled_confirmed"
    RECONCILED_FAILED = "reconciled_failed"
    ABANDONED = "abandoned"
    NOT_SENT = "not_sent"


class ReceiptState(StrEnum):
    """What happened after acceptance."""

    NOT_EXPECTED = "not_expected"
    AWAITED = "awaited"
    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"


class Actor(StrEnum):
    """Who may say that something happened."""

    AGENT = "agent"
    RELAY = "relay"
    RECONCILER = "reconciler"
    OPERATOR = "operator"


class Event(StrEnum):
    """What happened to an action."""

    CLAIMED = "claimed"
    RELEASED = "released"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    NO_EFFECT = "no_effect"
    HELD = "held"
    RESPONSE_LOST = "response_lost"
    CLAIM_EXPIRED = "claim_expired"
    HOLD_RELEASED = "hold_released"
    CANCELLED = "cancelled"
    DEADLINE_PASSED = "deadline_passed"
    FOUND = "found"
    REPLAY_ACCEPTED = "replay_accepted"
    RECEIPT_ARRIVED = "receipt_arrived"
    LATE_ACCEPTANCE = "late_acceptance"
    PROVEN_ABSENT = "proven_absent"
    REPLAY_REFUSED = "replay_refused"
    DECIDED_CONFIRMED = "decided_confirmed"
    DECIDED_FAILED = "decided_failed"
    DECIDED_ABANDONED = "decided_abandoned"
    DECIDED_RESEND = "decided_resend"


class ReceiptEvent(StrEnum):
    """What the provider reports after acceptance."""

    RECEIPT_DELIVERED = "receipt_delivered"
    RECEIPT_UNDELIVERED = "receipt_undelivered"


class RecordType(StrEnum):
    """What a record on the status topic announces."""

    ACTION_CREATED = "action_created"
    DISPATCH_STARTED = "dispatch_started"
    RETRY_SCHEDULED = "retry_scheduled"
    DELIVERY_CONFIRMED = "delivery_confirmed"
    DELIVERY_REJECTED = "delivery_rejected"
    ON_HOLD = "on_hold"
    DELIVERY_UNKNOWN = "delivery_unknown"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RECONCILED_CONFIRMED = "reconciled_confirmed"
    RECONCILED_FAILED = "reconciled_failed"
    ABANDONED = "abandoned"
    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"
    REVIEW_OPENED = "review_opened"
    REPLAY_STARTED = "replay_started"
    CANCEL_REQUESTED = "cancel_requested"
    DUPLICATE_SUSPECTED = "duplicate_suspected"


class State(NamedTuple):
    """The two facts that the relay and the reconciler move; a receipt is a third, apart."""

    execution: ExecutionState
    delivery: DeliveryState


class Transition(NamedTuple):
    """One legal step: what happened, who may say so, from where, to where."""

    event: Event
    actor: Actor
    origin: State
    target: State


class ReceiptTransition(NamedTuple):
    """One legal step of the receipt."""

    event: ReceiptEvent
    actor: Actor
    origin: ReceiptState
    target: ReceiptState


STATES: tuple[State, ...] = (
    State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING),
    State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING),
    State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_CONFIRMED),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_REJECTED),
    State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN),
    State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT),
    State(ExecutionState.EXPIRED, DeliveryState.NOT_SENT),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_FAILED),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.ABANDONED),
)

TERMINAL: frozenset[State] = frozenset((
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_CONFIRMED),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_REJECTED),
    State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT),
    State(ExecutionState.EXPIRED, DeliveryState.NOT_SENT),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_FAILED),
    State(ExecutionState.DISPATCH_FINISHED, DeliveryState.ABANDONED),
))

TRANSITIONS: tuple[Transition, ...] = (
    Transition(Event.CLAIMED, Actor.RELAY, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.CLAIMED, Actor.RELAY, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.RELEASED, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.RELEASED, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.ACCEPTED, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_CONFIRMED)),
    Transition(Event.REFUSED, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_REJECTED)),
    Transition(Event.NO_EFFECT, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.NO_EFFECT, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.HELD, Actor.RELAY, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.HELD, Actor.RELAY, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.HELD, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.RESPONSE_LOST, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN)),
    Transition(Event.CLAIM_EXPIRED, Actor.RELAY, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN)),
    Transition(Event.CLAIM_EXPIRED, Actor.RECONCILER, State(ExecutionState.DISPATCH_STARTED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN)),
    Transition(Event.HOLD_RELEASED, Actor.OPERATOR, State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING), State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.CANCELLED, Actor.AGENT, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.CANCELLED, Actor.AGENT, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.CANCELLED, Actor.AGENT, State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.CANCELLED, Actor.OPERATOR, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.CANCELLED, Actor.OPERATOR, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.CANCELLED, Actor.OPERATOR, State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.DEADLINE_PASSED, Actor.RECONCILER, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.EXPIRED, DeliveryState.NOT_SENT)),
    Transition(Event.DEADLINE_PASSED, Actor.RECONCILER, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.EXPIRED, DeliveryState.NOT_SENT)),
    Transition(Event.DEADLINE_PASSED, Actor.RECONCILER, State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING), State(ExecutionState.EXPIRED, DeliveryState.NOT_SENT)),
    Transition(Event.FOUND, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.FOUND, Actor.RECONCILER, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.FOUND, Actor.RECONCILER, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.FOUND, Actor.RECONCILER, State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.REPLAY_ACCEPTED, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.RECEIPT_ARRIVED, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.RECEIPT_ARRIVED, Actor.RECONCILER, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.RECEIPT_ARRIVED, Actor.RECONCILER, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.RECEIPT_ARRIVED, Actor.RECONCILER, State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.LATE_ACCEPTANCE, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.LATE_ACCEPTANCE, Actor.RECONCILER, State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.LATE_ACCEPTANCE, Actor.RECONCILER, State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.LATE_ACCEPTANCE, Actor.RECONCILER, State(ExecutionState.ON_HOLD, DeliveryState.DELIVERY_PENDING), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.PROVEN_ABSENT, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING)),
    Transition(Event.PROVEN_ABSENT, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_FAILED)),
    Transition(Event.PROVEN_ABSENT, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.EXPIRED, DeliveryState.NOT_SENT)),
    Transition(Event.PROVEN_ABSENT, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.REPLAY_REFUSED, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_FAILED)),
    Transition(Event.REPLAY_REFUSED, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.EXPIRED, DeliveryState.NOT_SENT)),
    Transition(Event.REPLAY_REFUSED, Actor.RECONCILER, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.CANCELLED, DeliveryState.NOT_SENT)),
    Transition(Event.DECIDED_CONFIRMED, Actor.OPERATOR, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_CONFIRMED)),
    Transition(Event.DECIDED_FAILED, Actor.OPERATOR, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_FAILED)),
    Transition(Event.DECIDED_ABANDONED, Actor.OPERATOR, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.DISPATCH_FINISHED, DeliveryState.ABANDONED)),
    Transition(Event.DECIDED_RESEND, Actor.OPERATOR, State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN), State(ExecutionState.RETRY_SCHEDULED, DeliveryState.DELIVERY_PENDING)),
)

RECEIPT_TRANSITIONS: tuple[ReceiptTransition, ...] = (
    ReceiptTransition(ReceiptEvent.RECEIPT_DELIVERED, Actor.RECONCILER, ReceiptState.AWAITED, ReceiptState.DELIVERED),
    ReceiptTransition(ReceiptEvent.RECEIPT_DELIVERED, Actor.RECONCILER, ReceiptState.NOT_EXPECTED, ReceiptState.DELIVERED),
    ReceiptTransition(ReceiptEvent.RECEIPT_UNDELIVERED, Actor.RECONCILER, ReceiptState.AWAITED, ReceiptState.UNDELIVERED),
    ReceiptTransition(ReceiptEvent.RECEIPT_UNDELIVERED, Actor.RECONCILER, ReceiptState.NOT_EXPECTED, ReceiptState.UNDELIVERED),
    ReceiptTransition(ReceiptEvent.RECEIPT_UNDELIVERED, Actor.RECONCILER, ReceiptState.DELIVERED, ReceiptState.UNDELIVERED),
)

MEANING: dict[str, str] = {
    "action_created": "Committed by the agent; may be dispatched when due.",
    "dispatch_started": "An attempt holds the claim; request bytes may have left.",
    "retry_scheduled": "Every attempt so far provably had no effect; due again.",
    "on_hold": "Needs a person or a fix before anything is sent.",
    "dispatch_finished": "Nothing more is sent for this action, unless the reconciler replays or a person decides.",
    "cancelled": "Withdrawn before any attempt could have had an effect.",
    "expired": "Its deadline passed before any attempt could have had an effect.",
    "delivery_pending": "No attempt can have had an effect yet, or one is under way.",
    "delivery_confirmed": "The provider's acceptance was parsed. Accepted is not delivered.",
    "delivery_rejected": "The provider refused for good.",
    "delivery_unknown": "Bytes may have left and no answer is trusted.",
    "reconciled_confirmed": "Acceptance was established after the answer had been lost.",
    "reconciled_failed": "Proven not to exist at the provider.",
    "abandoned": "A person closed it unproven.",
    "not_sent": "Nothing was sent, and nothing will be.",
    "not_expected": "The contract declares no receipts.",
    "awaited": "Accepted; the provider's receipt has not arrived.",
    "delivered": "The provider reports delivery.",
    "undelivered": "The provider reports that delivery failed. A bounce after a delivery wins and is marked late.",
}
