"""Opens the ledger for a program, and refuses one that does not fit: wrong version, wrong environment.

Nothing but the ledger package talks to PostgreSQL, and it talks through this pool.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from outbox_relay.errors import LedgerMismatch, LedgerUnavailable
from outbox_relay.ledger.accounts import Accounts
from outbox_relay.ledger.audit import Audit
from outbox_relay.ledger.claims import Claims
from outbox_relay.ledger.migrate import SCHEMA_VERSION
from outbox_relay.ledger.outcomes import Outcomes
from outbox_relay.ledger.reports import Reports
from outbox_relay.ledger.resolutions import Resolutions
from outbox_relay.ledger.retention import Retention
from outbox_relay.ledger.reviews import Reviews
from outbox_relay.ledger.session import Session, translated

CHECK_AFTER_S = 1.0
"""A connection that was in use so lately is taken to be alive; one that is not costs its caller a LedgerUnavailable."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which ledger this is."""

    ledger_id: UUID
    environment: str
    schema_version: int


class Ledger:
    """Everything a program may ask of the ledger, by topic. Every method is one round trip."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.accounts = Accounts(session)
        self.audit = Audit(session)
        self.claims = Claims(session)
        self.outcomes = Outcomes(session)
        self.resolutions = Resolutions(session)
        self.reviews = Reviews(session)
        self.reports = Reports(session)
        self.retention = Retention(session)

    async def identity(self) -> Identity:
        """Return which ledger this is."""
        statement = "select ledger_id, environment, schema_version from outbox.ledger_identity()"
        row = (await self._session.rows(statement))[0]
        return Identity(row["ledger_id"], row["environment"], row["schema_version"])


class _Connection(psycopg.AsyncConnection[Any]):
    """A connection that knows when it was last taken from the pool."""

    taken_at = -CHECK_AFTER_S
    """Monotonic seconds."""


async def _check_after_a_pause(connection: _Connection) -> None:
    """The pool's question before it hands a connection out: a round trip, so only to one that rested for a while."""
    now = time.monotonic()
    rested, connection.taken_at = now - connection.taken_at >= CHECK_AFTER_S, now
    if rested:
        await AsyncConnectionPool.check_connection(connection)


@asynccontextmanager
async def open_ledger(
    dsn: str,
    *,
    environment: str,
    application: str,
    max_size: int = 8,
    statement_timeout_s: float = 10,
    notify: bool = False,
) -> AsyncIterator[Ledger]:
    """Open a pool on the ledger at `dsn`, checked; close it at the end.

    With `notify` every change that is stored through it also notifies `outbox_changes`, without content.
    Raises LedgerUnavailable when it cannot be reached within ten seconds, LedgerMismatch when its schema version or
    its environment is not what this program was built and configured for.
    """
    connecting: dict[str, Any] = {
        "autocommit": True,
        "application_name": application,
        "connect_timeout": 5,
        "prepare_threshold": None,
        "options": (
            f"-c statement_timeout={int(statement_timeout_s * 1000)} -c lock_timeout=5000 "
            f"-c idle_in_transaction_session_timeout=30000{' -c outbox.notify=on' if notify else ''}"
        ),
    }
    pool: AsyncConnectionPool[_Connection] = AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=max_size,
        open=False,
        timeout=10,
        check=_check_after_a_pause,
        connection_class=_Connection,
        kwargs=connecting,
    )
    with translated():
        try:
            await pool.open(wait=True, timeout=10)
        except PoolTimeout:
            await pool.close()
            await _name_a_refusing_pooler(dsn, connecting)
            raise
        except BaseException:
            await pool.close()
            raise
    try:
        ledger = Ledger(Session(pool))
        await _check(ledger, environment)
        yield ledger
    finally:
        await pool.close()


async def _name_a_refusing_pooler(dsn: str, connecting: dict[str, Any]) -> None:
    # A pool only says that it got no connection in time; the reason is told to whoever asks once more.
    try:
        connection = await psycopg.AsyncConnection.connect(dsn, **connecting)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" in str(error):
            message = "the pooler in front of the ledger refuses a startup parameter of this program"
            hint = "add options to its ignore_startup_parameters, and give the role its time limits: docs/operating.md"
            raise LedgerUnavailable(message, hint=hint) from error
    else:
        await connection.close()


async def _check(ledger: Ledger, environment: str) -> None:
    identity = await ledger.identity()
    if identity.schema_version != SCHEMA_VERSION:
        message = f"the ledger is at version {identity.schema_version}, this program needs {SCHEMA_VERSION}"
        raise LedgerMismatch(message, hint="run: outbox migrate (or upgrade this program)")
    if identity.environment != environment:
        message = f"the ledger belongs to the environment {identity.environment!r}, this program to {environment!r}"
        raise LedgerMismatch(message, hint="set OUTBOX_ENVIRONMENT, or connect to the right database")
