"""JSON text read and edited without changing what it says.

Numbers keep their digits: they are text until somebody compares them. An edit touches the bytes it is about and no
others, so that an integer beyond 2^53, a long decimal or a letter of any script leaves as it came. Never uses a float.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]  # documented nowhere, stable since Python 3.1
from typing import Final, TypeAlias

MAX_DEPTH: Final = 64
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_INTEGER_DIGITS: Final = 4000
"""Python refuses to read longer integers; a decimal holds them."""


class NotExact(ValueError):
    """The text is not JSON that can be read or edited without a doubt."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number by its digits."""

    text: str

    def exact(self) -> int | Decimal:
        """The number itself."""
        whole = self.text.lstrip("-").isdigit() and len(self.text) <= _INTEGER_DIGITS
        return int(self.text) if whole else Decimal(self.text)


Value: TypeAlias = "str | Number | bool | list[Value] | dict[str, Value] | None"


def read(text: str) -> Value:
    """The value of a JSON text, numbers as `Number`. Raises NotExact."""
    try:
        value: Value = _READER.decode(text)
    except (ValueError, RecursionError) as error:
        raise NotExact(f"not readable JSON ({type(error).__name__})") from error
    # So many openings it takes at least: most payloads have a handful, and are walked by nobody.
    if text.count("{") + text.count("[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise NotExact(f"nested deeper than {MAX_DEPTH}")
    return value


def plain(value: Value) -> object:
    """The same value with numbers as int or Decimal, for a validator."""
    if isinstance(value, Number):
        return value.exact()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def find(value: Value, steps: Sequence[str]) -> Value:
    """What stands at a pointer. Raises KeyError when nothing does."""
    for step in steps:
        if isinstance(value, dict):
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise KeyError(step)
    return value


def without(text: str, name: str) -> str:
    """The object's text without one of its members; unchanged when it has none of that name."""
    members = _members(text, _SPACE.match(text, 0).end())  # type: ignore[union-attr]
    at = next((index for index, member in enumerate(members) if member.name == name), None)
    if at is None:
        return text
    if at + 1 < len(members):
        return text[: members[at].start] + text[members[at + 1].start :]
    start = members[at - 1].end if at else members[at].start
    return text[:start] + text[members[at].end :]


def with_member(text: str, steps: Sequence[str], value: str) -> str:
    """The object's text with a string placed where nothing stands yet; objects on the way are made. Raises NotExact."""
    start = _after_space(text, 0)
    for position, step in enumerate(steps):
        members = _members(text, start)
        member = next((member for member in members if member.name == step), None)
        if member is None:
            placed = json.dumps(value, ensure_ascii=False)
            for name in reversed(steps[position + 1 :]):
                placed = f"{{{json.dumps(name, ensure_ascii=False)}: {placed}}}"
            addition = f"{json.dumps(step, ensure_ascii=False)}: {placed}"
            at = members[-1].end if members else start + 1
            return f"{text[:at]}{', ' if members else ''}{addition}{text[at:]}"
        start = member.value_start
    raise NotExact(f"/{'/'.join(steps)} is taken")


def with_suffix(text: str, steps: Sequence[str], suffix: str) -> str:
    """The object's text with `suffix` at the end of the string that stands at the pointer. Raises NotExact."""
    start, end = _SPACE.match(text, 0).end(), len(text)  # type: ignore[union-attr]
    for step in steps:
        member = next((member for member in _members(text, start) if member.name == step), None)
        if member is None:
            raise NotExact(f"/{'/'.join(steps)} is missing")
        start, end = member.value_start, member.end
    if text[start] != '"':
        raise NotExact(f"/{'/'.join(steps)} is not a string")
    return text[: end - 1] + json.dumps(suffix, ensure_ascii=False)[1:-1] + text[end - 1 :]


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    start: int
    value_start: int
    end: int


_DECODER: Final = json.JSONDecoder(parse_int=Number, parse_float=Number)


def _members(text: str, start: int) -> list[_Member]:
    """Where the members of the object at `start` stand. The text has been read as a whole before."""
    if text[start : start + 1] != "{":
        raise NotExact("an object was expected")
    members: list[_Member] = []
    at = _after_space(text, start + 1)
    while text[at] != "}":
        name, after = scanstring(text, at + 1, True)
        value_start = _after_space(text, _after_space(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value_start)
        members.append(_Member(name, at, value_start, end))
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    return members


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _unique(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotExact("a member stands twice")
    return members


def _no_constant(name: str) -> Value:
    raise NotExact(f"{name} is not JSON")


_READER: Final = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=_no_constant, object_pairs_hook=_unique
)


def _deeper_than(value: Value, depth: int) -> bool:
    if isinstance(value, dict):
        return depth == 0 or any(_deeper_than(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return depth == 0 or any(_deeper_than(item, depth - 1) for item in value)
    return False
