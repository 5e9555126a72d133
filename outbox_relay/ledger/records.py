"""The values that pass between the ledger and its callers.

Plain data, no driver: the decisions of the relay and the reconciler can be tested from these alone. Durations are
seconds as float, instants are timezone-aware and always the database's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType
from uuid import UUID

from outbox_relay.states import DeliveryState, Event, ExecutionState, ReceiptState
from outbox_relay.values import value

ActionId = NewType("ActionId", UUID)
ClaimToken = NewType("ClaimToken", UUID)


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One declared (provider, account, operation) with what the database needs of its contract.

    Written by `outbox providers apply`. The relay refuses to start when its own configuration gives other rows.
    """

    provider: str
    account: str
    operation: str
    mode: str
    """hold, shadow or live."""
    contract_version: str
    base_url: str
    account_identity: str
    """Which account the provider sees; a replay under another identity is refused."""
    key_max_length: int
    key_pattern: str
    """Regular expression (both PostgreSQL's and Python's) that a key must match whole to be sent as it is."""
    key_shared: bool
    """The account also serves another ledger, so that the agent's key must be made unique to this one."""
    recipient_paths: tuple[tuple[str, ...], ...]
    """JSON paths into the payload, one of which must hold the recipient; empty when the contract cannot tell."""
    payload_max_bytes: int
    retry_limit: int
    """How many attempts without effect are scheduled again before the action goes on hold."""
    unordered_after_unknown: bool
    """True when an unknown or held head does not block later actions of its ordering key."""
    receipts_expected: bool
    review_owner: str
    """Who owns a review of this account unless a routing rule says otherwise."""


@dataclass(frozen=True, slots=True)
class Demand:
    """How many actions one account can take right now."""

    provider: str
    account: str
    slots: int


@value
class Claim:
    """One action under our claim, with all that is needed to send it. Never logged: it holds the payload."""

    action_id: ActionId
    claim_token: ClaimToken
    attempt: int
    provider: str
    account: str
    operation: str
    mode: str
    idempotency_key: str
    wire_key: str
    recipient: str | None
    payload: str
    """The exact JSON text that the database holds; these bytes are the body of a JSON request."""
    contract_version: str
    base_url: str
    account_identity: str
    ordering_key: str | None
    created_at: datetime
    first_attempt_at: datetime | None
    due_age_s: float
    """How long the action had been due when it was claimed."""
    traceparent: str | None


@value
class Evidence:
    """What one attempt, lookup, receipt or person established. Headers and excerpt are cleaned and capped already."""

    kind: str
    """response, no_response, late_acceptance, lookup, replay, receipt or statement."""
    proves: str
    """acceptance, refusal, absence, arrival (the provider has seen the key) or nothing."""
    reason: str
    """A short class in snake_case, such as connect_refused, http_500 or answer_unreadable."""
    attempt: int | None = None
    phase: str | None = None
    """Last transport phase: not_sent, sent, headers, body, complete."""
    method: str | None = None
    url: str | None = None
    body_sha256: str | None = None
    wire_key: str | None = None
    account_identity: str | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    excerpt: str | None = None
    provider_id: str | None = None
    recorded_at: datetime | None = None
    """Set by the database."""


@value
class Outcome:
    """What one attempt of the relay proved: ACCEPTED, REFUSED, NO_EFFECT, HELD, RESPONSE_LOST or RELEASED."""

    action_id: ActionId
    claim_token: ClaimToken
    event: Event
    reason: str
    provider_id: str | None = None
    retry_in_s: float | None = None
    """When not None, the earliest next attempt; else the ledger's own backoff."""
    message: str | None = None
    """For last_error: cleaned, capped, free of payload, recipient and secrets."""
    evidence: Evidence | None = None


class Verdict(StrEnum):
    """What the ledger did with an outcome or a resolution."""

    APPLIED = "applied"
    STALE = "stale"
    """The claim was no longer ours; nothing changed, and an acceptance was kept as evidence."""


@value
class Recorded:
    """The ledger's answer to one outcome or resolution."""

    action_id: ActionId
    verdict: Verdict
    execution_state: ExecutionState
    delivery_state: DeliveryState


@dataclass(frozen=True, slots=True)
class UnknownCase:
    """An action claimed by the reconciler, with everything a decision about it may use."""

    claim: Claim
    execution_state: ExecutionState
    delivery_state: DeliveryState
    now: datetime
    """The database's clock when the case was claimed."""
    first_attempt_at: datetime
    last_attempt_at: datetime
    in_flight_until: datetime
    """The latest moment at which any attempt could still have been sent."""
    unknown_since: datetime
    deliver_by: datetime | None
    cancel_requested: bool
    review_open: bool
    lookups: int
    replays: int
    resends: int
    """How often the action was scheduled again after it was proven absent."""
    evidence: tuple[Evidence, ...]
    """All evidence, oldest first."""
    unused_acceptance: Evidence | None
    """An acceptance that arrived by another way and has not been used yet."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the reconciler concluded under its claim."""

    action_id: ActionId
    claim_token: ClaimToken
    event: Event
    reason: str
    resend: bool = False
    """For PROVEN_ABSENT: schedule the action again under the same key instead of closing it as reconciled_failed."""
    provider_id: str | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Postponement:
    """The reconciler gives its claim back and wants to look again after `delay_s`."""

    action_id: ActionId
    claim_token: ClaimToken
    delay_s: float
    reason: str
    spent_lookup: bool = False
    """True when an authoritative answer was read, so that the bound on lookups counts it; failures spend none."""
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """The reconciler cannot go on: a person must look. The action stays as it is, its claim is given back."""

    action_id: ActionId
    claim_token: ClaimToken
    reason: str
    owner: str
    missing: str
    """Which evidence is missing, in words."""
    next_step: str
    due_in_s: float
    look_again_in_s: float | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """One row of the operator's queue."""

    review_id: int
    action_id: ActionId
    provider: str
    account: str
    operation: str
    idempotency_key: str
    execution_state: ExecutionState
    delivery_state: DeliveryState
    reason: str
    owner: str
    missing: str
    next_step: str
    opened_at: datetime
    due_at: datetime
    closed_at: datetime | None
    decision: str | None
    decided_by: str | None


@dataclass(frozen=True, slots=True)
class ActionSummary:
    """What lists and waits show of an action; never its payload or recipient."""

    action_id: ActionId
    idempotency_key: str
    provider: str
    account: str
    operation: str
    execution_state: ExecutionState
    delivery_state: DeliveryState
    receipt_state: ReceiptState
    attempt_count: int
    provider_id: str | None
    resolution: str | None
    last_error: str | None
    advice: str
    check_again_at: datetime | None
    duplicate_suspected: bool
    created_at: datetime
    updated_at: datetime
