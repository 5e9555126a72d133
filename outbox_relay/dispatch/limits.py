"""How much one provider account can take right now: slots, rate, the provider's own pause, and the breaker.

Pure decisions: the clock is an argument (any monotonic seconds), nothing here sleeps, sends or knows the ledger. One
gate per account, so that no provider's trouble slows another's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

TROUBLES_TO_OPEN = 5
"""Consecutive troubles after which the breaker opens."""
PROBE_FIRST_S = 1.0
PROBE_MAX_S = 300.0
"""A fresh action probes an open account after 1 s, then 2 s, ... up to 5 minutes: each probe may become an unknown."""
PAUSE_FIRST_S = 1.0
PAUSE_GUESS_MAX_S = 300.0
"""Pauses that the provider wants without saying how long double from 1 s up to 5 minutes."""
PAUSE_MAX_S = 3600.0
"""No answer of a provider can stop an account for longer."""
BURST_S = 0.1
"""The bucket holds this much of the rate, so that a limit per second also holds over any one second."""

ROUNDING_S = 1e-8
"""Added to a wait whose end, a rounded sum, would fall short of the instant that it stands for."""


class Effect(StrEnum):
    """What an attempt says about the account's health, whatever it says about the action."""

    HEALTHY = "healthy"
    """The provider gave a complete answer that it understood."""
    TROUBLE = "trouble"
    """No answer, an unreadable one, a server error, or no connection."""
    THROTTLED = "throttled"
    """The provider wants fewer requests."""
    BLOCKED = "blocked"
    """The account as such was refused, or its address is wrong: every further action would burn in the same way."""
    NEUTRAL = "neutral"
    """Nothing was learned about the provider."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an account may do at most."""

    slots: int
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.slots < 1 or (self.rate_per_s is not None and self.rate_per_s <= 0):
            raise ValueError("slots must be at least 1 and rate_per_s more than 0")

    @property
    def burst(self) -> float:
        """Most tokens the bucket can hold."""
        return max(1.0, (self.rate_per_s or 0.0) * BURST_S)


@dataclass(frozen=True, slots=True)
class Permit:
    """Says under which state of the breaker an attempt was let through."""

    epoch: int


class AccountGate:
    """The limits of one account in motion. Every method takes the same monotonic clock."""

    def __init__(self, limits: Limits, *, now: float) -> None:
        self.limits = limits
        self.in_flight = 0
        self._tokens = limits.burst
        self._filled_at = now
        self._paused_until = now
        self._guessed_pauses = 0
        self._troubles = 0
        self._epoch = 0
        self._open = False
        self._probe_at = now
        self._probe_delay_s = PROBE_FIRST_S
        self._probing = False
        self._window = limits.slots

    @property
    def open(self) -> bool:
        """True while the breaker keeps fresh actions back."""
        return self._open

    def paused(self, now: float) -> bool:
        """True while the provider's pause lasts."""
        return now < self._paused_until

    def room(self, now: float) -> int:
        """How many actions may start now; 0 when any limit is reached."""
        if now < self._paused_until or self._full():
            return 0
        if self._open:
            return 1 if now >= self._probe_at and self._whole_tokens(now) else 0
        return min(self._window - self.in_flight, self._whole_tokens(now))

    def opens_in(self, now: float) -> float | None:
        """Seconds until time alone makes room; None when only a finished attempt can, or when there is room."""
        if self._full() or self.room(now) > 0:
            return None
        until = max(self._paused_until, self._probe_at) if self._open else self._paused_until
        wait_s = max(0.001, until - now, self._token_in(now))
        return wait_s if now + wait_s >= until else wait_s + ROUNDING_S

    def start(self, count: int, now: float) -> Permit:
        """Take slots and tokens for `count` actions, at most `room`."""
        self._refill(now)
        self.in_flight += count
        if self.limits.rate_per_s is not None:
            self._tokens -= count
        if self._open and count:
            self._probing = True
        return Permit(self._epoch)

    def give_back(self, count: int, permit: Permit) -> None:
        """Return what `start` took for actions that were not sent after all."""
        self.in_flight -= count
        if self.limits.rate_per_s is not None:
            self._tokens = min(self.limits.burst, self._tokens + count)
        if count and permit.epoch == self._epoch:
            self._probing = False

    def finish(self, effect: Effect, permit: Permit, now: float, *, retry_after_s: float | None = None) -> None:
        """An attempt ended. Only attempts that started after the breaker last moved can move it."""
        self.in_flight -= 1
        if effect is Effect.THROTTLED or retry_after_s is not None:
            self._pause(now, retry_after_s)
        if permit.epoch == self._epoch:
            self._judge(effect, now)

    def _full(self) -> bool:
        return self._probing or self.in_flight >= (self.limits.slots if self._open else self._window)

    def _judge(self, effect: Effect, now: float) -> None:
        self._probing = False
        match effect:
            case Effect.HEALTHY:
                self._recovered()
            case Effect.TROUBLE:
                self._troubled(now, weight=1)
            case Effect.BLOCKED:
                self._troubled(now, weight=TROUBLES_TO_OPEN)
            case Effect.THROTTLED | Effect.NEUTRAL:
                pass

    def _recovered(self) -> None:
        self._troubles = 0
        self._guessed_pauses = 0
        if self._open:
            self._open = False
            self._epoch += 1
            self._probe_delay_s = PROBE_FIRST_S
        # After an outage the door opens by one more per success: no herd falls on a provider that just came back.
        self._window = min(self.limits.slots, self._window + 1)

    def _troubled(self, now: float, *, weight: int) -> None:
        if self._open:
            self._probe_delay_s = min(PROBE_MAX_S, self._probe_delay_s * 2)
            self._probe_at = now + self._probe_delay_s
            return
        self._troubles += weight
        if self._troubles >= TROUBLES_TO_OPEN:
            self._open = True
            self._epoch += 1
            self._window = 1
            self._probe_at = now + self._probe_delay_s

    def _pause(self, now: float, asked_s: float | None) -> None:
        # The answers to one burst are one wish: only the first of them lengthens the next pause and halves the window.
        first = now >= self._paused_until
        if asked_s is not None and not math.isnan(asked_s):
            wait_s = min(PAUSE_MAX_S, max(0.0, asked_s))
        elif first:
            wait_s = min(PAUSE_GUESS_MAX_S, PAUSE_FIRST_S * 2.0 ** min(self._guessed_pauses, 16))
            self._guessed_pauses += 1
        else:
            return
        if first:
            self._window = max(1, self._window // 2)
        self._paused_until = max(self._paused_until, now + wait_s)

    def _refill(self, now: float) -> None:
        if self.limits.rate_per_s is not None and now > self._filled_at:
            self._tokens = min(self.limits.burst, self._tokens + (now - self._filled_at) * self.limits.rate_per_s)
            self._filled_at = now

    def _whole_tokens(self, now: float) -> int:
        if self.limits.rate_per_s is None:
            return self.limits.slots
        self._refill(now)
        # A hair below a whole token is a whole token: sums of floats must not cost a round.
        return max(0, math.floor(self._tokens + 1e-9))

    def _token_in(self, now: float) -> float:
        if self.limits.rate_per_s is None:
            return 0.0
        self._refill(now)
        return max(0.0, (1.0 - self._tokens) / self.limits.rate_per_s)
