"""Reads an answer by the expressions of a contract. Pure. What cannot be read is None, never a guess."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, TypeAlias

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult

from outbox_relay.attempt.cleaning import clean
from outbox_relay.attempt.remembered import Remembered
from outbox_relay.providers.contract import Operation
from outbox_relay.providers.exchange import Answer
from outbox_relay.providers.parts import AnswerRule

Json: TypeAlias = "str | int | Decimal | bool | list[Json] | dict[str, Json] | None"
MAX_ID_LENGTH: Final = 255
_INTEGER_DIGITS: Final = 4000


_PLAIN_PATH: Final = re.compile(r"body(\.[A-Za-z_][A-Za-z0-9_]*)+")


@lru_cache(maxsize=4096)
def _steps(expression: str) -> tuple[str, ...] | None:
    """The names of a path that needs no interpreter, such as body.data.id; None for everything else."""
    return tuple(expression.split(".")[1:]) if _PLAIN_PATH.fullmatch(expression) else None


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> ParsedResult:
    return jmespath.compile(expression)


class ReadAnswer:
    """An answer with its body parsed, if it can be parsed."""

    __slots__ = ("_body", "_document", "answer", "readable")

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._body = None if answer.capped or not answer.complete else _parsed(answer.body)
        self.readable = self._body is not None
        self._document: Mapping[str, Json] | None = None

    @property
    def document(self) -> Mapping[str, Json]:
        """What expressions are read against: status, headers and body."""
        if self._document is None:
            answer = self.answer
            headers: dict[str, Json] = {name: ", ".join(values) for name, values in answer.headers.items()}
            self._document = {"status": answer.status, "headers": headers, "body": self._body}
        return self._document

    def read(self, expression: str) -> Json:
        """What an expression finds; None when it finds nothing or does not fit what is there."""
        steps = _steps(expression)
        if steps is None:
            return search(expression, self.document)
        found = self._body
        for step in steps:
            # As JMESPath has it: nothing is found in what is no object.
            found = found.get(step) if isinstance(found, dict) else None
        return found

    def holds(self, expression: str | None) -> bool:
        """True when there is no condition, or when it reads as true in JMESPath's sense."""
        return expression is None or truthy(self.read(expression))

    def matches(self, rule: AnswerRule) -> bool:
        """True when the answer is one of those that the rule speaks of."""
        return self.answer.status in rule.statuses and self.holds(rule.when)


def search(expression: str, document: object) -> Json:
    """A JMESPath search that finds nothing rather than raising."""
    try:
        found: Json = _compiled(expression).search(document)
    except (JMESPathError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None
    return found


def truthy(value: Json) -> bool:
    """JMESPath's truth: numbers are true, also 0; empty texts, lists and objects are not."""
    if isinstance(value, str | list | dict):
        return bool(value)
    return value is not None and value is not False


def as_id(value: Json) -> str | None:
    """A provider's id as text; None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    cleaned = clean(text, limit=MAX_ID_LENGTH)
    return text if text.strip() and cleaned == text else None


def _parsed(body: bytes) -> Json:
    try:
        parsed: Json = _DECODER.decode(body.decode())
    except (ValueError, RecursionError, ArithmeticError):
        return None
    return parsed


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _INTEGER_DIGITS else Decimal(digits)


def _no_constant(name: str) -> Json:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_int=_integer, parse_constant=_no_constant)


def _statuses_in_rules(operation: Operation) -> frozenset[int]:
    key = operation.idempotency
    rules = (*key.mismatch, *key.in_progress, *operation.throttling, *operation.holds, *operation.refusals)
    return frozenset(status for rule in rules for status in rule.statuses)


SPOKEN_OF: Final = Remembered(_statuses_in_rules)
"""Statuses that any rule names: only these answers need to be held against the rules."""
