"""Remembers what was worked out from a frozen object, such as an operation, by the object's identity.

For values that every attempt needs and that only depend on what was loaded at the start. It holds the object, so that
an identity can never come to mean another one; it never holds anything of an action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

_KEPT_MAX: Final = 4096
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Remembered(Generic[_Key, _Value]):
    """A function of one frozen object, worked out once per object."""

    def __init__(self, work_out: Callable[[_Key], _Value]) -> None:
        self._work_out = work_out
        self._known: dict[int, tuple[_Key, _Value]] = {}

    def of(self, key: _Key) -> _Value:
        """The value for this very object."""
        found = self._known.get(id(key))
        if found is not None:
            return found[1]
        value = self._work_out(key)
        if len(self._known) >= _KEPT_MAX:
            self._known.clear()
        self._known[id(key)] = (key, value)
        return value
