"""One plausible action per provider, so that a drill can be run against each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from outbox_relay.errors import UsageError
from outbox_relay.trial.memory import Document


@dataclass(frozen=True, slots=True)
class Sample:
    """What an agent would ask of a provider."""

    provider: str
    operation: str
    payload: Document

    def worded(self, text: str) -> Document:
        """The payload with a text of its own, where the provider has one."""
        field = next((name for name in ("subject", "body", "text", "description") if name in self.payload), None)
        return self.payload if field is None else self.payload | {field: text}

    def apart(self, number: int) -> Self:
        """The same to another issue or channel, so that a lookup reads a bounded number of pages."""
        own = {"issue_number": 100 + number, "channel": f"C{number:04d}"}
        return replace(self, payload=self.payload | {name: own[name] for name in own if name in self.payload})


SAMPLES = {
    sample.provider: sample
    for sample in (
        Sample(
            "resend",
            "emails.send",
            {"from": "deploys@example.com", "to": ["oncall@example.com"], "subject": "-", "text": "Deployed."},
        ),
        Sample(
            "github",
            "issue_comments.create",
            {"owner": "example", "repo": "shop", "issue_number": 42, "body": "-"},
        ),
        Sample("stripe", "refunds.create", {"payment_intent": "pi_trial", "amount": 4200}),
        Sample("slack", "chat.post_message", {"channel": "C042DEPLOYS", "text": "-"}),
        Sample(
            "pagerduty",
            "events.enqueue",
            {"event_action": "trigger", "payload": {"summary": "deploy", "source": "ci", "severity": "info"}},
        ),
        Sample("trial-a-plus", "transfers.create", {"amount": 4200, "description": "-"}),
        Sample("trial-b", "orders.create", {"location": "L42", "text": "-"}),
        Sample("trial-completion", "messages.send", {"to": "oncall@example.com", "subject": "-"}),
        Sample("standard-webhooks", "events.send", {"type": "deploy.finished", "data": {"build": 42}}),
    )
}


def sample_of(provider: str) -> Sample:
    """The sample of a provider. Raises UsageError."""
    if provider not in SAMPLES:
        raise UsageError(f"there is no sample for {provider!r}", hint=f"use one of {', '.join(sorted(SAMPLES))}")
    return SAMPLES[provider]
