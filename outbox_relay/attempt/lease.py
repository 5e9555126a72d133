"""How much of a claim's lease is left, by a clock that counts suspension.

Measured from before the claim's round trip, so that the database's own lease always ends later. Says nothing about
instants: the database's clock is the only time truth.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


def boottime() -> float:
    """Seconds on a clock that goes on while the machine is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim's lease. Take `obtained_at_boottime` with `boottime()` BEFORE the claim is asked for."""

    obtained_at_boottime: float
    lease_s: float

    def remaining_s(self) -> float:
        """Seconds that are left for certain; negative when it is over."""
        return self.obtained_at_boottime + self.lease_s - boottime()

    def covers(self, deadline_s: float) -> bool:
        """True when the whole deadline fits into what is left."""
        return self.remaining_s() > deadline_s
