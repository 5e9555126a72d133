"""Values that every attempt makes by the dozen: immutable to the type checker, cheap when the program runs.

A frozen dataclass sets each field by a call, which costs nine times what a plain one does; with a hundred such fields
per attempt that was a tenth of its time. For values on that way only: everything else is a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Value = TypeVar("_Value")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[_Value]) -> type[_Value]:
    """A slotted dataclass with equality and hash; who assigns to a field of it is told so by mypy."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
