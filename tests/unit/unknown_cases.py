"""Cases and terms for the reconciler's tests, as plain values: each test changes only what it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from outbox_relay.ledger.records import ActionId, Claim, ClaimToken, Evidence, UnknownCase
from outbox_relay.providers.parts import Step
from outbox_relay.states import DeliveryState, ExecutionState
from reconciler.terms import LookupTerms, Policy, ReplayTerms, Terms

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
"""The first attempt."""
WINDOW_S = 86_400.0
POLICY = Policy()


def after(seconds: float) -> datetime:
    """A moment so many seconds after the first attempt."""
    return START + timedelta(seconds=seconds)


CLAIM = Claim(
    action_id=ActionId(UUID(int=1)),
    claim_token=ClaimToken(UUID(int=2)),
    attempt=1,
    provider="keyed",
    account="default",
    operation="emails.send",
    mode="live",
    idempotency_key="acme:order:42:notify:1",
    wire_key="acme:order:42:notify:1",
    recipient=None,
    payload="{}",
    contract_version="1+abc",
    base_url="https://api.example.com",
    account_identity="team_1",
    ordering_key=None,
    created_at=START,
    first_attempt_at=START,
    due_age_s=0.0,
    traceparent=None,
)

CASE = UnknownCase(
    claim=CLAIM,
    execution_state=ExecutionState.DISPATCH_FINISHED,
    delivery_state=DeliveryState.DELIVERY_UNKNOWN,
    now=after(600),
    first_attempt_at=START,
    last_attempt_at=START,
    in_flight_until=after(40),
    unknown_since=after(10),
    deliver_by=None,
    cancel_requested=False,
    review_open=False,
    lookups=0,
    replays=0,
    resends=0,
    evidence=(),
    unused_acceptance=None,
)
"""An unknown after its settle time: the answer to the only attempt was lost ten minutes ago."""

REPLAY = ReplayTerms(window_s=WINDOW_S, published=True)
PROOF = LookupTerms(authoritative=True, lag_s=120)
HINT = LookupTerms(authoritative=False, lag_s=120)

KEYED = Terms(
    provider="keyed",
    account="default",
    operation="emails.send",
    contract_type="A",
    contract_version="1+abc",
    base_url="https://api.example.com",
    account_identity="team_1",
    live=True,
    processing_s=60,
    order=(Step.REPLAY,),
    lookup=None,
    replay=REPLAY,
    review_owner="mail-team",
)
"""Type A: replay inside the window, then a person."""
NOKEY = replace(KEYED, contract_type="D", order=(Step.LOOKUP,), lookup=PROOF, replay=None)
"""Type D: an authoritative lookup, then a person."""
QUERIED = replace(KEYED, contract_type="A+", order=(Step.LOOKUP, Step.REPLAY), lookup=HINT)
"""Lookup that can only find, then replay."""
KEYED_THEN_LOOKUP = replace(KEYED, order=(Step.REPLAY, Step.LOOKUP), lookup=PROOF)
"""Replay, then an authoritative lookup, as Stripe."""
BLIND = replace(KEYED, contract_type="E", order=(), replay=None)
"""Type E: only a person."""


def evidence(kind: str, reason: str, proves: str = "nothing", *, at_s: float = 100.0) -> Evidence:
    """One item of evidence, recorded so many seconds after the first attempt."""
    return Evidence(kind=kind, proves=proves, reason=reason, recorded_at=after(at_s))
