"""What the simulated provider remembers: keys with their first answers, and the things it made.

Pure: time is passed in, as seconds of the provider's own clock, which the admin path can move forward.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

Scope = tuple[str, ...]
"""What a key is unique within, and the key: (account, operation, key)."""
Document = dict[str, object]
"""A parsed body, or one that is about to be written."""


class ProviderClock:
    """The provider's wall clock: real time plus an offset, so that a window can end without anybody waiting."""

    def __init__(self) -> None:
        # One reading, from the provider's own database: it stands for somebody else's machine. Durations are monotonic.
        with closing(sqlite3.connect(":memory:")) as connection:
            (epoch_s,) = connection.execute("select (julianday('now') - 2440587.5) * 86400").fetchone()
        self._epoch_s = float(epoch_s) - time.monotonic()
        self._offset_s = 0.0

    def now(self) -> float:
        """Seconds since 1970 at the provider."""
        return self._epoch_s + time.monotonic() + self._offset_s

    def advance(self, seconds: float) -> None:
        """Let time pass at the provider."""
        self._offset_s += seconds

    def at(self, seconds: float) -> datetime:
        """A moment of this clock as a date."""
        return datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    provider_id: str | None = None


class Standing(StrEnum):
    """How a request relates to what is remembered under its key."""

    FRESH = "fresh"
    IN_PROGRESS = "in_progress"
    MISMATCH = "mismatch"
    REPLAYED = "replayed"


@dataclass
class _Entry:
    body_sha256: str
    started_at: float
    answer: Answer | None = None
    finished_at: float | None = None


class KeyMemory:
    """Idempotency keys and their first answers.

    `retention_s` None keeps them for ever. The window counts from completion when `from_completion`, else from the
    first request.
    """

    def __init__(self, *, retention_s: float | None, from_completion: bool = False, ignores_body: bool = False) -> None:
        self._retention_s = retention_s
        self._from_completion = from_completion
        self._ignores_body = ignores_body
        self._entries: dict[Scope, _Entry] = {}

    def begin(self, scope: Scope, body_sha256: str, now: float) -> tuple[Standing, Answer | None]:
        """Say what a request is, and remember a fresh one as being worked on."""
        entry = self._entries.get(scope)
        if entry is None or self._is_over(entry, now):
            self._entries[scope] = _Entry(body_sha256, started_at=now)
            return Standing.FRESH, None
        if entry.body_sha256 != body_sha256 and not self._ignores_body:
            return Standing.MISMATCH, None
        if entry.answer is None:
            return Standing.IN_PROGRESS, None
        return Standing.REPLAYED, entry.answer

    def finish(self, scope: Scope, answer: Answer, now: float) -> None:
        """Remember the answer for every later request with this key."""
        entry = self._entries[scope]
        entry.answer, entry.finished_at = answer, now

    def forget(self, scope: Scope) -> None:
        """Nothing was done, so the key is as good as new."""
        self._entries.pop(scope, None)

    def _is_over(self, entry: _Entry, now: float) -> bool:
        if self._retention_s is None:
            return False
        counted_from = (entry.finished_at or now) if self._from_completion else entry.started_at
        return now - counted_from >= self._retention_s


@dataclass(frozen=True, slots=True)
class Thing:
    """Something the provider made, with what a lookup may need to find it."""

    number: int
    provider_id: str
    ref: str
    """The key or the marker of the action it belongs to."""
    operation: str
    account: str
    values: dict[str, str]
    """What the request's path named, by JSON pointer of the payload."""
    document: Document
    """The request's body as it was parsed."""
    made_at: float


class Shelf:
    """All things made, oldest first, shown to lookups only after `lag_s`."""

    def __init__(self) -> None:
        self.lag_s = 0.0
        self._things: list[Thing] = []

    def __len__(self) -> int:
        return len(self._things)

    def add(self, thing: Thing) -> None:
        """Put a thing on the shelf."""
        self._things.append(thing)

    def visible(self, *, account: str, now: float) -> list[Thing]:
        """The things of one account that a lookup at `now` can see."""
        return [thing for thing in self._things if thing.account == account and thing.made_at + self.lag_s <= now]
