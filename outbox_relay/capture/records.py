"""What a record of the status topic says to those who wake up on it. Pure, and never trusts the record.

Anyone who may write to the topic can write nonsense: it is counted and skipped, and a forged wake-up only causes a
claim that finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

TYPE_PREFIX = "outbox-relay.delivery-status."
TYPE_SUFFIX = ".v1"
_NAME_MAX = 200
_VALUE_MAX_BYTES = 65_536


class Use(StrEnum):
    """What became of a record, as the metric counts it."""

    WAKEUP = "wakeup"
    OTHER = "other"
    OLD = "old"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Something may be due: for whom, and which action."""

    action_id: UUID
    provider: str
    account: str
    record_type: str


def read_wakeup(
    headers: Iterable[tuple[str, str | bytes | None]], value: bytes | None, record_types: frozenset[str]
) -> tuple[Wakeup | None, Use]:
    """Read one record; the value is parsed only when its type is one of those asked for."""
    record_type = _record_type(headers)
    if record_type is None:
        return None, Use.UNREADABLE
    if record_type not in record_types:
        return None, Use.OTHER
    try:
        wakeup = _wakeup(record_type, value)
    except (ValueError, RecursionError):
        wakeup = None
    return (None, Use.UNREADABLE) if wakeup is None else (wakeup, Use.WAKEUP)


def _record_type(headers: Iterable[tuple[str, str | bytes | None]]) -> str | None:
    for name, value in headers:
        if name == "ce_type" and value is not None:
            text = value if isinstance(value, str) else value.decode(errors="replace")
            if text.startswith(TYPE_PREFIX) and text.endswith(TYPE_SUFFIX):
                return text[len(TYPE_PREFIX) : -len(TYPE_SUFFIX)]
    return None


def _wakeup(record_type: str, value: bytes | None) -> Wakeup | None:
    if value is None or len(value) > _VALUE_MAX_BYTES:
        return None
    data = json.loads(value)
    if not isinstance(data, dict):
        return None
    action_id, provider, account = data.get("action_id"), data.get("provider"), data.get("account")
    if not (isinstance(action_id, str) and isinstance(provider, str) and isinstance(account, str)):
        return None
    if len(provider) > _NAME_MAX or len(account) > _NAME_MAX:
        return None
    return Wakeup(UUID(action_id), provider, account, record_type)
