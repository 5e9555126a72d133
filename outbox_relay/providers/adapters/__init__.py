"""What a declared contract cannot express: signatures that are made anew for every attempt.

An adapter gets the finished request and returns headers to add. It may change nothing else: method, URL, key and body
are the same on every attempt. Adapters of other packages register in the entry-point group `outbox_relay.adapters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Final, Protocol

from outbox_relay.errors import ContractError
from outbox_relay.providers.credentials import Credentials

GROUP: Final = "outbox_relay.adapters"


@dataclass(frozen=True, slots=True)
class Signable:
    """One attempt's request, ready but for its signature."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    key: str
    credentials: Credentials
    at_unix_s: int
    """When this attempt is made."""


class Adapter(Protocol):
    """Signs attempts. Pure: no I/O, no clock."""

    def sign(self, signable: Signable) -> Mapping[str, str]:
        """Headers to add. Raises ValueError when the credentials cannot sign."""
        ...


def find_adapter(name: str) -> Adapter:
    """The shipped adapter of that name, else one from an entry point. Raises ContractError."""
    if name == "standard-webhooks":
        from outbox_relay.providers.adapters.standard_webhooks import StandardWebhooks

        return StandardWebhooks()
    for entry in metadata.entry_points(group=GROUP, name=name):
        made: Adapter = entry.load()()
        return made
    hint = f"install the package that registers it in the entry-point group {GROUP}"
    raise ContractError(f"there is no adapter named {name}", hint=hint)
