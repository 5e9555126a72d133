"""A request as it will be sent. Pure; its repr shows no header value, no body and no secret."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field, replace
from urllib.parse import urlsplit

from outbox_relay.attempt.cleaning import clean
from outbox_relay.errors import OutboxError
from outbox_relay.providers.exchange import MAX_ANSWER_BYTES
from outbox_relay.values import value


class CannotRender(OutboxError):
    """The action cannot be sent as it is. Nothing was sent; `reason` is a class in snake_case."""

    def __init__(self, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


@value
class Request:
    """Method, URL, headers and exact bytes, with what makes two attempts comparable."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    wire_key: str
    account_identity: str
    secrets: tuple[str, ...] = field(repr=False)
    """What must not appear in anything that is kept of the exchange."""
    has_body: bool = True
    max_answer_bytes: int = MAX_ANSWER_BYTES
    fresh_connection: bool = False
    """True where a connection that drops on reuse would leave a doubt that no replay can end."""

    @property
    def body_sha256(self) -> str:
        """Hex digest of the exact bytes."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def target(self) -> str:
        """The URL without its query, which may name people, and without a secret that stands in its path."""
        bare = urlsplit(self.url)._replace(query="", fragment="").geturl()
        return clean(bare, secrets=self.secrets)

    def with_headers(self, added: Mapping[str, str]) -> Request:
        """The same request with headers added, as a signature is."""
        return replace(self, headers={**self.headers, **added})
