"""How a provider recognises the same action, as its contract states it.

Pure. The window for a replay is what the provider publishes less a margin; it can be shortened, never stretched.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from outbox_relay.providers.parts import AnswerRule, HeaderName, Part, Pointer, Regex, Seconds, refuse


class ReplayedMarker(Part):
    """The header by which an answer shows that it is a stored one."""

    header: HeaderName
    value: str = "true"


class Idempotency(Part):
    """How the provider recognises the same action. `none` states that it does not."""

    kind: Literal["header", "body", "natural", "none"]
    name: HeaderName | None = None
    """For kind header: the header's name."""
    pointer: Pointer | None = None
    """For kind body and natural: where the key is placed in the JSON body."""
    max_length: Annotated[int, Field(ge=16, le=4096)] = 255
    pattern: Regex = "[!-~]+"
    """What a key must match whole; has to mean the same to Python and to PostgreSQL."""
    quoted: bool = False
    """Sent as a Structured Field string (in double quotes), as the IETF draft asks."""
    scope: str | None = None
    """In words: what the provider compares a key within, such as account and mode."""
    retention_s: Annotated[float, Field(gt=0)] | Literal["unpublished"] | None = None
    """Documented minimum for which the provider remembers a key."""
    replay_window_s: Seconds | None = None
    """What we use of it when unpublished; may only shorten a published one."""
    margin_s: Seconds = 300
    """Taken off the window for clocks and queues."""
    counts_from: Literal["first_attempt", "completion"] = "first_attempt"
    stores: Literal["all", "2xx", "after_execution", "unpublished"] = "unpublished"
    """Which answers the provider stores and gives again."""
    mismatch: tuple[AnswerRule, ...] = ()
    in_progress: tuple[AnswerRule, ...] = ()
    replayed: ReplayedMarker | None = None
    refused_replay_proves_absence: bool = False
    """True only where the provider documents that a refusal under a key means nothing exists under that key."""

    @property
    def window_s(self) -> float | None:
        """Seconds from the first attempt during which a replay is safe; None when no replay is."""
        if self.kind == "none" or self.retention_s is None:
            return None
        published = None if self.retention_s == "unpublished" else self.retention_s
        whole = min((limit for limit in (published, self.replay_window_s) if limit is not None), default=None)
        return None if whole is None else max(whole - self.margin_s, 0.0)

    @model_validator(mode="after")
    def _states_what_it_claims(self) -> Idempotency:
        if self.kind == "none":
            if self.retention_s is not None or self.name or self.pointer:
                raise refuse("kind", "kind none claims a key", "remove name, pointer and retention_s, or name the kind")
            return self
        if self.kind == "header" and (self.name is None or self.pointer is not None):
            raise refuse("name", "a key in a header needs the header's name", "write name: Idempotency-Key")
        if self.kind != "header" and (self.pointer is None or self.name is not None):
            raise refuse("pointer", "a key in the body needs its place", "write pointer: /member")
        if self.retention_s is None:
            fix = "write retention_s: SECONDS, or retention_s: unpublished with replay_window_s"
            raise refuse("retention_s", "a key without its retention claims too much", fix)
        if self.retention_s == "unpublished" and self.replay_window_s is None:
            fix = "write replay_window_s, a small window that you are ready to answer for (0 for no replay)"
            raise refuse("replay_window_s", "an unpublished retention gives no window", fix)
        if isinstance(self.retention_s, float) and (self.replay_window_s or 0) > self.retention_s:
            fix = "shorten replay_window_s or remove it"
            raise refuse("replay_window_s", "the window is longer than the published retention", fix)
        return self
