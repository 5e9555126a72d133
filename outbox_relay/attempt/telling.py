"""What the log says of an attempt, the same for a first send and a replay. Never a recipient, a body or a key."""

from __future__ import annotations

from outbox_relay.attempt.classify import Classification
from outbox_relay.ledger.records import Claim
from outbox_relay.telemetry import AttemptLine


def line_of(claim: Claim, found: Classification, duration_s: float) -> AttemptLine:
    """The line of one attempt; `duration_s` is from its claim to its answer."""
    return AttemptLine(
        action_id=claim.action_id,
        attempt=claim.attempt,
        provider=claim.provider,
        account=claim.account,
        operation=claim.operation,
        finding=found.finding,
        reason=found.reason,
        status=found.evidence.status,
        phase=found.evidence.phase,
        duration_ms=duration_s * 1000,
        trace_id=trace_of(claim.traceparent),
    )


def trace_of(traceparent: str | None) -> str | None:
    """The trace id of a W3C traceparent; None when there is none or it is none."""
    parts = (traceparent or "").split("-")
    fits = len(parts) >= 4 and len(parts[1]) == 32 and set(parts[1]) <= set("0123456789abcdef")
    return parts[1] if fits else None
