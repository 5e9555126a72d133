"""What the simulated provider does wrong, to which request, and how often. Seeded, so that a run can be repeated.

Chosen from outside (the admin path or `--fault`); nothing here knows the relay.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Fault(StrEnum):
    """Each fault says whether the effect happens and what the caller gets to see."""

    NONE = "none"
    ACCEPT_THEN_DROP = "accept_then_drop"
    """The effect happens, then the connection is closed without an answer."""
    DROP_BEFORE_RECEIPT = "drop_before_receipt"
    """The connection is closed, nothing is booked: the request never arrived."""
    ACCEPT_THEN_HANG = "accept_then_hang"
    """The effect happens, `accepted` is announced, and the answer is held until released."""
    HOLD_BEFORE_RECEIPT = "hold_before_receipt"
    """Nothing is booked, `held` is announced, and the connection is held until released."""
    HANG = "hang"
    """The request is booked, nothing is done, and no answer comes until released."""
    REFUSE = "refuse"
    """A definite refusal of the contract; nothing is done."""
    THROTTLE = "throttle"
    """429 with Retry-After; nothing is done."""
    SERVER_ERROR = "server_error"
    """A 500; nothing is done and nothing is remembered."""
    SERVER_ERROR_CACHED = "server_error_cached"
    """A 500 that the key memory repeats."""
    SERVER_ERROR_AFTER_EFFECT = "server_error_after_effect"
    """The effect happens, and the answer is a 500. A replay gets the acceptance."""
    SERVER_ERROR_CACHED_AFTER_EFFECT = "server_error_cached_after_effect"
    """The effect happens, the answer is a 500, and that is what the key memory repeats."""
    WORK_UNTIL_RELEASED = "work_until_released"
    """The key is in progress, `working` is announced, and the effect happens when released, whoever still waits."""
    GARBAGE = "garbage"
    """The effect happens, and the success has a body that cannot be read."""
    EMPTY = "empty"
    """The effect happens, and the success has no body."""
    HALF_ANSWER = "half_answer"
    """The effect happens, and the connection closes in the middle of the answer."""
    SLOW_DRIP = "slow_drip"
    """The effect happens, and the answer comes byte by byte."""
    REDIRECT = "redirect"
    """A 307 to `location`; nothing is done."""
    IN_PROGRESS = "in_progress"
    """The contract's answer for a key that is still being worked on."""
    MISMATCH = "mismatch"
    """The contract's answer for a key that came with another body."""


HELD_FAULTS = frozenset({Fault.ACCEPT_THEN_HANG, Fault.HOLD_BEFORE_RECEIPT, Fault.HANG})
ACCEPTING_FAULTS = frozenset(
    {
        Fault.NONE,
        Fault.ACCEPT_THEN_DROP,
        Fault.ACCEPT_THEN_HANG,
        Fault.SERVER_ERROR_AFTER_EFFECT,
        Fault.SERVER_ERROR_CACHED_AFTER_EFFECT,
        Fault.WORK_UNTIL_RELEASED,
        Fault.GARBAGE,
        Fault.EMPTY,
        Fault.HALF_ANSWER,
        Fault.SLOW_DRIP,
    }
)


class FaultRule(BaseModel):
    """One order: which requests, which fault, how often. All given conditions must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fault: Fault
    times: int | None = Field(default=1, ge=1)
    """How many requests it hits; None is all of them."""
    kind: Literal["operation", "lookup"] = "operation"
    key: str | None = None
    """Exact key or marker of the action."""
    key_prefix: str | None = None
    nth: int | None = Field(default=None, ge=1)
    """The nth request of one action (1 is its first attempt)."""
    probability: float = Field(default=1.0, gt=0, le=1)
    retry_after: str | None = None
    """The Retry-After value, as it stands in the header."""
    delay_s: float = Field(default=0, ge=0)
    """Between bytes of a slow drip."""
    status: int | None = None
    body: str | None = None
    location: str | None = None


@dataclass
class _Order:
    rule: FaultRule
    left: int | None


@dataclass
class FaultPlan:
    """The orders in force. The newest matching one wins."""

    seed: int
    _orders: list[_Order] = field(default_factory=list)
    _seen: dict[tuple[str, str | None], int] = field(default_factory=dict)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def add(self, rule: FaultRule) -> None:
        """Put an order in force."""
        self._orders.append(_Order(rule, rule.times))

    def clear(self) -> None:
        """Heal: no order stays in force."""
        self._orders.clear()

    def choose(self, *, kind: str, ref: str | None) -> FaultRule | None:
        """Pick the fault for a request that has just come in, and count it."""
        count = self._seen[kind, ref] = self._seen.get((kind, ref), 0) + 1
        for order in reversed(self._orders):
            if order.left != 0 and self._matches(order.rule, kind, ref, count):
                if order.left is not None:
                    order.left -= 1
                return order.rule
        return None

    def _matches(self, rule: FaultRule, kind: str, ref: str | None, count: int) -> bool:
        return (
            rule.kind == kind
            and (rule.key is None or rule.key == ref)
            and (rule.key_prefix is None or (ref or "").startswith(rule.key_prefix))
            and (rule.nth is None or rule.nth == count)
            and (rule.probability >= 1 or self._random.random() < rule.probability)
        )
