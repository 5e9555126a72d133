"""Signs a webhook as Standard Webhooks asks.

The id (our key) and the body are the same on every attempt; timestamp and signature are of the attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from outbox_relay.providers.adapters import Signable


class StandardWebhooks:
    """HMAC-SHA256 over `id.timestamp.body`, with the secret `signing_secret` (with or without `whsec_`)."""

    def sign(self, signable: Signable) -> Mapping[str, str]:
        """The three headers `webhook-id`, `webhook-timestamp` and `webhook-signature`."""
        moment = datetime.fromtimestamp(signable.at_unix_s, tz=UTC)
        try:
            signer = Webhook(signable.credentials["signing_secret"])
        except (EmptyWebhookSecretError, RuntimeError) as error:
            raise ValueError("the signing secret is not usable") from error
        return {
            "webhook-id": signable.key,
            "webhook-timestamp": str(signable.at_unix_s),
            "webhook-signature": signer.sign(msg_id=signable.key, timestamp=moment, data=signable.body.decode()),
        }
