"""What one request to a provider showed: how far it got and what came back.

Pure values. Whether bytes may have left is decided here from the phase alone, never from the name of an exception.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from outbox_relay.values import value

MAX_ANSWER_BYTES: Final = 65_536
"""How much of an answer to an attempt is read."""
MAX_PAGE_BYTES: Final = 4_194_304
"""How much of one page of a lookup is read: a page that was cut proves nothing."""


class Phase(StrEnum):
    """How far a request provably got."""

    NOT_SENT = "not_sent"
    """No connection was obtained, or it was refused before its first byte was written."""
    SENT = "sent"
    """Bytes may have left."""
    HEADERS = "headers"
    """Status and headers of an answer were read."""
    BODY = "body"
    """A part of the answer's body was read, then it broke off."""
    COMPLETE = "complete"
    """The answer was read to its end, or to our own cap."""


@value
class Answer:
    """Status, headers and at most 64 KiB of body. Header names are lower-case; repeated ones keep every value."""

    status: int
    headers: Mapping[str, tuple[str, ...]]
    body: bytes
    complete: bool
    """False when the provider broke off before the end."""
    capped: bool = False
    """True when we stopped reading (or unpacking) at our own cap."""

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        values = self.headers.get(name.lower())
        return values[0] if values else None


@value
class Transmission:
    """One request, sent at most once."""

    phase: Phase
    answer: Answer | None
    failure: str | None
    """A class of trouble in snake_case, to be read by people; None when the answer is complete."""
    duration_s: float
    released: bool = False
    """True when the lease was too short in the last moment, so that nothing was written."""

    @property
    def bytes_may_have_left(self) -> bool:
        """True unless it is proven that not one byte of the request was written."""
        return self.phase is not Phase.NOT_SENT


def unpacked(body: bytes, encodings: tuple[str, ...], cap: int) -> tuple[bytes, bool]:
    """Unpack gzip or deflate up to the cap, for providers that pack although we ask them not to.

    Anything else is left as it is, hence unreadable; a bomb costs no more than the cap.
    """
    if not encodings:
        return body, False
    names = [name.strip().lower() for value in encodings for name in value.split(",") if name.strip()]
    if names not in (["gzip"], ["x-gzip"], ["deflate"]):
        return body, False
    unpacker = zlib.decompressobj(wbits=47)
    try:
        plain = unpacker.decompress(body, cap)
    except zlib.error:
        return body, False
    return plain, bool(unpacker.unconsumed_tail) or len(plain) == cap
