"""The one way from Python into the ledger: a pool, a call of a function, and our names for what went wrong.

Statements are `select ... from outbox.<function>(...)` and nothing else; a call is one round trip and one transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, LiteralString, TypeVar, cast
from uuid import UUID

import psycopg
from psycopg.rows import args_row, dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from outbox_relay.errors import IllegalTransition, IntentConflict, LedgerUnavailable, NotFound, OutboxError, Refused

Row = Mapping[str, Any]
_Made = TypeVar("_Made")

_REFUSALS: dict[str, type[OutboxError]] = {
    "OB001": IntentConflict,
    "OB002": IllegalTransition,
    "OB009": NotFound,
}
"""Our SQLSTATEs (class OB, in the range that the standard leaves to implementations); others are plain refusals."""

_UNAVAILABLE = ("08", "53", "57", "58", "25006", "40", "42501", "55P03", "XX")
"""Classes and codes after which the ledger may be asked again later: connection, resources, shutdown, read-only,
serialization and deadlock, revoked rights, lock timeout, internal."""


def as_json(values: Sequence[object]) -> Jsonb:
    """Wrap dataclasses or mappings as one jsonb parameter; durations in `_s` become whole milliseconds in `_ms`."""
    return Jsonb([_plain(value) for value in values], dumps=lambda value: json.dumps(value, default=_json_value))


def _plain(value: object) -> dict[str, object]:
    # Not asdict: it copies every nested value, which costs more than the rest of an outcome's way. What is None is left
    # out: every function reads records, and a record's missing field is null.
    if is_dataclass(value):
        named = [(out, timed, getattr(value, name)) for name, out, timed in _fields_of(value.__class__)]
    else:
        named = [(*_sent_as(name), item) for name, item in cast(Row, value).items()]
    return {out: milliseconds(item) if timed else _storable(item) for out, timed, item in named if item is not None}


@lru_cache(maxsize=64)
def _fields_of(kind: type) -> tuple[tuple[str, str, bool], ...]:
    """A dataclass's fields: name, name in the ledger, and whether it is a duration."""
    return tuple((name, *_sent_as(name)) for name in kind.__dataclass_fields__)  # type: ignore[attr-defined]


def _sent_as(name: str) -> tuple[str, bool]:
    timed = name.endswith("_s")
    return (f"{name[:-2]}_ms" if timed else name), timed


def _storable(value: object) -> object:
    # jsonb refuses NUL and lone surrogates, and one such text would take its whole batch with it.
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode() if _is_poison(value) else value
    if is_dataclass(value):
        fields = _fields_of(value.__class__)
        return {name: _storable(item) for name, _, _ in fields if (item := getattr(value, name)) is not None}
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value


_POISON = re.compile("[\0\ud800-\udfff]")


def _is_poison(text: str) -> bool:
    return _POISON.search(text) is not None


def _json_value(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    isoformat = getattr(value, "isoformat", None)
    if isoformat is not None:
        return str(isoformat())
    raise TypeError(f"{type(value).__name__} does not belong into the ledger")


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least zero and at most thirty years."""
    return min(max(int(seconds * 1000), 0), 1_000_000_000_000)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the driver's errors as ours: unavailable, refused by the ledger, or a bug of this program."""
    try:
        yield
    except (PoolTimeout, psycopg.InterfaceError) as error:
        raise LedgerUnavailable(f"the ledger cannot be reached: {error}") from error
    except psycopg.Error as error:
        state = error.sqlstate or ""
        message = error.diag.message_primary or str(error).strip() or type(error).__name__
        if state.startswith("OB"):
            raise _REFUSALS.get(state, Refused)(message, hint=error.diag.message_hint) from error
        if isinstance(error, psycopg.OperationalError) or state.startswith(_UNAVAILABLE):
            raise LedgerUnavailable(f"the ledger did not answer: {message}") from error
        raise OutboxError(f"the ledger refused a statement of this program ({state}): {message}") from error


class Session:
    """A pool of connections in autocommit, and the calls that go through it."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def rows(self, statement: LiteralString, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run one function call and return its rows by name."""
        with translated():
            async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(statement, parameters)
                return cast(list[Row], await cursor.fetchall())

    async def made(
        self, make: Callable[..., _Made], statement: LiteralString, parameters: Sequence[Any] = ()
    ) -> list[_Made]:
        """Run one function call and give each row's columns to `make`, in the statement's order."""
        with translated():
            async with self._pool.connection() as connection, connection.cursor(row_factory=args_row(make)) as cursor:
                await cursor.execute(statement, parameters)
                return cast(list[_Made], await cursor.fetchall())

    async def value(self, statement: LiteralString, parameters: Sequence[Any] = ()) -> Any:  # noqa: ANN401 - the caller knows its function
        """Run one function call and return its single value."""
        rows = await self.rows(statement, parameters)
        return next(iter(rows[0].values())) if rows else None
