"""The simulated provider's own record of what reached it and what it did: the oracle of every drill.

One SQLite file, append-only (triggers refuse UPDATE and DELETE), written before an answer leaves the provider. It is
never shown to the programs under test and holds hashes of bodies, not bodies.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
create table if not exists requests (
  number integer primary key, at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), kind text not null,
  operation text not null, method text not null, url text not null, ref text, wire_key text, account text not null,
  body_sha256 text not null, body_bytes integer not null, complete integer not null, fault text);
create table if not exists effects (
  number integer primary key, at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  operation text not null, ref text not null, provider_id text not null, request integer not null references requests,
  body_sha256 text not null, account text not null);
create table if not exists answers (
  request integer not null references requests, at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  status integer, meaning text not null, provider_id text);
create index if not exists requests_ref on requests (ref);
create index if not exists effects_ref on effects (ref);
"""
APPEND_ONLY = """
create trigger if not exists {table}_{verb} before {verb} on {table}
begin select raise(abort, 'the book is append-only'); end;
"""


@dataclass(frozen=True, slots=True)
class RequestLine:
    """One request as the provider saw it. `ref` names the logical action: its key, or the marker in its body."""

    number: int
    at: str
    kind: str
    """operation or lookup."""
    operation: str
    method: str
    url: str
    ref: str | None
    wire_key: str | None
    account: str
    """A short hash of the credential that was sent."""
    body_sha256: str
    body_bytes: int
    complete: int
    """0 when the body ended early, else 1."""
    fault: str | None


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One thing that the provider did: the email, the comment, the refund."""

    number: int
    at: str
    operation: str
    ref: str
    provider_id: str
    request: int
    body_sha256: str
    account: str


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """What the provider said to a request, or did to its connection. `status` is None when nothing was said."""

    request: int
    at: str
    status: int | None
    meaning: str
    provider_id: str | None


class BookWriter:
    """The provider's side. One connection, one thread; every line is committed before the call returns."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        # The provider is never killed by a power cut: surviving its own death is enough, and that needs no fsync.
        self._connection.execute("pragma synchronous = off")
        self._connection.executescript(SCHEMA)
        for table in ("requests", "effects", "answers"):
            for verb in ("update", "delete"):
                self._connection.executescript(APPEND_ONLY.format(table=table, verb=verb))

    def request(
        self,
        *,
        kind: str,
        operation: str,
        method: str,
        url: str,
        ref: str | None,
        wire_key: str | None,
        account: str,
        body: bytes,
        complete: bool,
        fault: str | None,
    ) -> int:
        """Write down a request and return its number."""
        cursor = self._connection.execute(
            "insert into requests (kind, operation, method, url, ref, wire_key, account, body_sha256, body_bytes,"
            " complete, fault) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (kind, operation, method, url, ref, wire_key, account, _sha256(body), len(body), complete, fault),
        )
        return int(cursor.lastrowid or 0)

    def effect(self, *, operation: str, ref: str, provider_id: str, request: int, body: bytes, account: str) -> None:
        """Write down an effect before anybody is told about it."""
        self._connection.execute(
            "insert into effects (operation, ref, provider_id, request, body_sha256, account)"
            " values (?, ?, ?, ?, ?, ?)",
            (operation, ref, provider_id, request, _sha256(body), account),
        )

    def answer(self, *, request: int, status: int | None, meaning: str, provider_id: str | None = None) -> None:
        """Write down what is said to a request, just before it is said."""
        self._connection.execute(
            "insert into answers (request, status, meaning, provider_id) values (?, ?, ?, ?)",
            (request, status, meaning, provider_id),
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class Book:
    """The reader's side, for tests, drills and the demo. Safe while the provider writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _rows(self, sql: str, values: Sequence[str] = ()) -> Iterator[sqlite3.Cursor]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=5)) as connection:
            yield connection.execute(sql, values)

    def requests(self, ref: str | None = None, *, kind: str | None = "operation") -> list[RequestLine]:
        """All requests in order, or those of one action. `kind=None` includes lookups."""
        sql = (
            "select number, at, kind, operation, method, url, ref, wire_key, account, body_sha256, body_bytes,"
            " complete, fault from requests where (?1 = '' or ref = ?1) and (?2 = '' or kind = ?2) order by number"
        )
        with self._rows(sql, (ref or "", kind or "")) as rows:
            return [RequestLine(*row) for row in rows]

    def effects(self, ref: str | None = None) -> list[EffectLine]:
        """All effects in order, or those of one action."""
        sql = (
            "select number, at, operation, ref, provider_id, request, body_sha256, account from effects"
            " where (?1 = '' or ref = ?1) order by number"
        )
        with self._rows(sql, (ref or "",)) as rows:
            return [EffectLine(*row) for row in rows]

    def answers(self, ref: str | None = None) -> list[AnswerLine]:
        """What was said to operations, in order; or to those of one action."""
        sql = (
            "select a.request, a.at, a.status, a.meaning, a.provider_id from answers a join requests r"
            " on r.number = a.request where (?1 = '' or r.ref = ?1) and r.kind = 'operation' order by a.rowid"
        )
        with self._rows(sql, (ref or "",)) as rows:
            return [AnswerLine(*row) for row in rows]

    def told(self, meaning: str) -> set[str]:
        """The logical actions that have had an answer of this meaning."""
        sql = "select distinct r.ref from answers a join requests r on r.number = a.request where a.meaning = ?1"
        with self._rows(sql, (meaning,)) as rows:
            return {ref for (ref,) in rows if ref is not None}

    def effects_per_key(self) -> dict[str, int]:
        """How many effects each logical action had. The figure that must never exceed one."""
        with self._rows("select ref, count(*) from effects group by ref") as rows:
            return dict(rows.fetchall())

    def duplicates(self) -> dict[str, int]:
        """The actions that happened more than once."""
        return {ref: count for ref, count in self.effects_per_key().items() if count > 1}

    def variants(self) -> dict[str, list[tuple[str, str, str, str | None, str]]]:
        """Actions whose attempts were not all alike: every distinct (method, URL, body hash, wire key, account).

        Requests that ended early are left out: their body hash is that of a part.
        """
        seen: dict[str, set[tuple[str, str, str, str | None, str]]] = {}
        for line in self.requests():
            if line.ref is not None and line.complete:
                shape = (line.method, line.url, line.body_sha256, line.wire_key, line.account)
                seen.setdefault(line.ref, set()).add(shape)
        return {ref: sorted(shapes, key=str) for ref, shapes in seen.items() if len(shapes) > 1}


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
