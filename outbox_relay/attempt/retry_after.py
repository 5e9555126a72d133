"""Reads how long a provider wants to be left alone. Never raises, never waits less than asked (below the cap).

A date is measured against the answer's own Date header: the relay's clock has no say. What cannot be read gives None,
and the caller's own backoff applies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from outbox_relay.providers.exchange import Answer

CAP_S: Final = 3_600.0
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_FAR_YEAR: Final = re.compile(r"[A-Za-z]{3}, [0-9]{1,2} [A-Za-z]{3} [0-9]{5,}\b")


def read_retry_after(answer: Answer, *, cap_s: float = CAP_S) -> float | None:
    """Seconds to wait, between 0 and `cap_s`; the longest of several headers; None when none can be read."""
    return longest([_one(value, answer, cap_s) for value in answer.headers.get("retry-after", ())])


def read_reset(answer: Answer, header: str, *, cap_s: float = CAP_S) -> float | None:
    """Seconds until the instant (Unix seconds) that a header names, measured against the answer's Date."""
    value, date = answer.header(header), _date(answer.header("date"))
    if value is None or date is None or not re.fullmatch(r"[0-9]{1,15}", value.strip()):
        return None
    return _capped(float(int(value)) - date.timestamp(), cap_s)


def longest(waits: Sequence[float | None]) -> float | None:
    """The longest of the waits that are known."""
    return max((wait for wait in waits if wait is not None), default=None)


def _one(value: str, answer: Answer, cap_s: float) -> float | None:
    value = value.strip()
    if _SECONDS.fullmatch(value):
        # float() reads any number of digits; what overflows is infinite, and the cap is what it means.
        return _capped(float(value), cap_s)
    if _FAR_YEAR.match(value):
        return cap_s
    until, now = _date(value), _date(answer.header("date"))
    if until is None or now is None:
        return None
    return _capped((until - now).total_seconds(), cap_s)


def _capped(seconds: float, cap_s: float) -> float:
    return cap_s if math.isnan(seconds) else min(max(seconds, 0.0), cap_s)


def _date(value: str | None) -> datetime | None:
    if value is None or len(value) > 64:
        return None
    try:
        moment = parsedate_to_datetime(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
