"""The one way from Python into the ledger: a pool, a call of a function, and our names for what went wrong.

Statements are `select ... from outbox.<function>(...)` and nothing else; a call is one round trip and one transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from datetime import date
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, LiteralString, TypeVar, cast
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
    return Jsonb(values, dumps=_storable_text)


def _storable_text(values: Sequence[object]) -> str:
    text = _encode([_record(value) for value in values])
    # jsonb refuses NUL and lone surrogates, and one such text would take its whole batch with it. All else is ASCII, so
    # one look at the batch tells whether any may be there.
    return _encode(_cleaned(json.loads(text))) if "\\u0000" in text or "\\ud" in text else text


def _record(value: object) -> dict[str, object]:
    # Not asdict: it copies every nested value, which costs more than the rest of an outcome's way. What is None is left
    # out: every function reads records, and a record's missing field is null.
    if isinstance(value, dict):
        fields, found = _fields_named(tuple(value)), tuple(value.values())
    else:
        fields = _fields_of(value)
        found = fields.read(value)
    record = {name: item for name, item in zip(fields.sent_as, found, strict=True) if item is not None}
    for name in fields.durations:
        if name in record:
            record[name] = milliseconds(record[name])
    return record


@dataclass(frozen=True, slots=True)
class _Fields:
    """A record's fields: their names, their names in the ledger, which of these are durations, and how to read all."""

    names: tuple[str, ...]
    sent_as: tuple[str, ...]
    durations: tuple[str, ...]
    read: Callable[[object], tuple[Any, ...]]


_KNOWN: Final[dict[type, _Fields]] = {}


def _fields_of(value: object) -> _Fields:
    """Of a dataclass with two fields or more. Raises TypeError for everything else: it does not belong here."""
    known = _KNOWN.get(type(value))
    if known is None:
        names = tuple(field.name for field in dataclass_fields(value))  # type: ignore[arg-type]  # raises TypeError
        known = _KNOWN[type(value)] = _fields_named(names)
    return known


@lru_cache(maxsize=64)
def _fields_named(names: tuple[str, ...]) -> _Fields:
    sent_as = tuple(f"{name[:-2]}_ms" if name.endswith("_s") else name for name in names)
    durations = tuple(sent for name, sent in zip(names, sent_as, strict=True) if sent != name)
    return _Fields(names, sent_as, durations, attrgetter(*names))


def _inner(value: object) -> object:
    """What JSON does not know: an id, an instant, or a record inside a record, which goes under its own names."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    fields = _fields_of(value)
    return {name: item for name, item in zip(fields.names, fields.read(value), strict=True) if item is not None}


_encode: Final = json.JSONEncoder(default=_inner, check_circular=False, separators=(",", ":")).encode
_POISON: Final = re.compile("[\0\ud800-\udfff]")


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return _POISON.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_cleaned(name): _cleaned(item) for name, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


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
