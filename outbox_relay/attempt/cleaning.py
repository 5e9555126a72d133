"""Makes text that others wrote fit to be stored and shown. Used on every excerpt before anything is kept.

The database refuses NUL and lone surrogates, and providers echo what they were sent, secrets included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from outbox_relay.providers.exchange import Answer

EXCERPT_LIMIT: Final = 2_000
HEADER_LIMIT: Final = 300
_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_MIN_SECRET: Final = 4
_KEPT: Final = frozenset(
    {
        "content-type",
        "date",
        "idempotent-replayed",
        "location",
        "request-id",
        "retry-after",
        "stripe-should-retry",
        "x-github-request-id",
        "x-idempotent-replayed",
        "x-message-id",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-request-id",
        "x-slack-req-id",
    }
)


def clean(text: str, *, limit: int = EXCERPT_LIMIT, secrets: Iterable[str] = ()) -> str:
    """`text` without control characters, lone surrogates and secrets, cut to `limit` characters."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET:
            text = text.replace(secret, "***")
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return cut if cut.isascii() and cut.isprintable() else _UNFIT.sub("\ufffd", cut)


def excerpt(answer: Answer, secrets: Iterable[str] = ()) -> str:
    """The start of an answer's body, as text that can be stored."""
    return clean(answer.body.decode("utf-8", errors="replace"), secrets=secrets)


def kept_headers(answer: Answer, also: Iterable[str] = (), secrets: Iterable[str] = ()) -> Mapping[str, str]:
    """The few headers worth keeping, cleaned."""
    wanted = _KEPT | {name.lower() for name in also}
    secrets = tuple(secrets)
    return {
        name: clean(", ".join(values), limit=HEADER_LIMIT, secrets=secrets)
        for name, values in answer.headers.items()
        if name in wanted
    }
