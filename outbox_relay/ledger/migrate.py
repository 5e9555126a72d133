"""Installs and upgrades the ledger: numbered migrations once, functions and grants whenever their files change.

One advisory lock, one transaction, and a checksum for every file applied (ADR: docs/decisions, own migration runner).
It never touches a schema that is not ours, and never goes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from outbox_relay.errors import LedgerMismatch, LedgerUnavailable, Refused
from outbox_relay.ledger.roles import Platform, RoleNames, make_roles, quoted
from outbox_relay.resources import resource

__all__ = ["SCHEMA_VERSION", "RoleNames", "Script", "migrate", "printed", "scripts"]

SCHEMA_VERSION = 3
"""The newest migration this code knows. A ledger with a newer one is refused."""

_LOCK = 7_305_808_869_231_650_164
"""Key of the advisory lock that racing migrations wait for; any constant does, this one spells nothing."""


@dataclass(frozen=True, slots=True)
class Script:
    """One SQL file: when it is applied, and its text with the role names filled in."""

    name: str
    text: str
    version: int | None
    """The number of a migration; None for a file that is applied again when it changes."""

    @property
    def checksum(self) -> str:
        """Sha256 of the text, hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


_BOOKKEEPING = """\
create schema if not exists outbox;
create table if not exists outbox.schema_migrations (
  version integer primary key, name text not null, checksum text not null,
  applied_at timestamptz not null default clock_timestamp()
);
create table if not exists outbox.schema_files (
  name text primary key, checksum text not null, applied_at timestamptz not null default clock_timestamp()
);
"""


def scripts(roles: RoleNames, *, testing: bool) -> list[Script]:
    """List every file in the order of its application."""
    root = resource("schemas", "ledger")
    found = [
        Script(f"migrations/{path.name}", _filled(path, roles), int(path.name[:4]))
        for path in sorted((root / "migrations").glob("*.sql"))
    ]
    found += [
        Script(f"functions/{path.name}", _filled(path, roles), None)
        for path in sorted((root / "functions").glob("*.sql"))
    ]
    names = ["views.sql", "triggers.sql", "states.sql", *(["testing.sql"] if testing else []), "roles.sql"]
    return found + [Script(name, _filled(root / name, roles), None) for name in names]


def _filled(path: Path, roles: RoleNames) -> str:
    text = path.read_text()
    if path.parent.name == "ledger":
        for part, name in roles.items():
            text = text.replace("{" + part + "}", quoted(name))
    return text


def printed(*, environment: str, roles: RoleNames | None = None, testing: bool = False) -> str:
    """Return all of a fresh installation as one SQL script, for teams with their own migration tool."""
    roles = roles or RoleNames()
    parts = ["begin;", "set local check_function_bodies = off;", _BOOKKEEPING]
    for script in scripts(roles, testing=testing):
        parts.append(f"-- {script.name}\n{script.text}")
        table, columns, values = _receipt(script)
        parts.append(f"insert into outbox.{table} ({columns}) values ({values});")  # noqa: S608 - from shipped files
    environment_literal = environment.replace("'", "''")
    parts.append(f"insert into outbox.ledger (environment) values ('{environment_literal}');")  # noqa: S608
    parts.append("commit;")
    return "\n\n".join(parts) + "\n"


def _receipt(script: Script) -> tuple[str, str, str]:
    if script.version is None:
        return "schema_files", "name, checksum", f"'{script.name}', '{script.checksum}'"
    return "schema_migrations", "version, name, checksum", f"{script.version}, '{script.name}', '{script.checksum}'"


def migrate(
    dsn: str,
    *,
    environment: str,
    roles: RoleNames | None = None,
    create_roles: bool = True,
    platform: Platform = Platform.OWN,
    testing: bool = False,
    passwords: Mapping[str, str] | None = None,
    patience_s: float = 10,
    progress: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Bring the ledger at `dsn` to this version and return the names of the files that were applied.

    `passwords` maps a part (agent, relay, reconciler, operator, capture) to the password its role is given.
    Raises LedgerMismatch for a foreign schema, another environment, a changed migration or a newer ledger, Refused
    when the owner may not do it, LedgerUnavailable when a lock is not free within `patience_s`: agents queue behind a
    migration that waits. Another migrator is waited for as long as it takes. `progress` hears what is being done.
    """
    roles = roles or RoleNames()
    try:
        connection = psycopg.connect(dsn, autocommit=True, application_name="outbox migrate")
    except psycopg.OperationalError as error:
        raise LedgerUnavailable(f"cannot connect to the database: {error}".strip()) from error
    # A snapshot from before the wait would hide what another migrator did meanwhile.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    with _explained(), connection, connection.transaction():
        _wait_for_other_migrators(connection, progress)
        connection.execute("select set_config('lock_timeout', %s, true)", [f"{int(patience_s * 1000)}ms"])
        _refuse_foreign_schema(connection)
        if create_roles:
            make_roles(connection, roles, passwords or {}, platform)
        _run(connection, _BOOKKEEPING)
        applied = _apply(connection, scripts(roles, testing=testing), progress)
        _settle_environment(connection, environment)
    return applied


@contextmanager
def _explained() -> Iterator[None]:
    """Say in our words what a DBA can mend; everything was rolled back."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        message = "a long transaction that uses the ledger holds a lock; nothing was changed"
        raise LedgerUnavailable(message, hint="let it end, then migrate again") from error
    except psycopg.errors.UndefinedObject as error:
        message = f"{error.diag.message_primary}; nothing was changed"
        raise Refused(message, hint="make the roles first: outbox migrate --roles=print shows how") from error
    except psycopg.errors.InsufficientPrivilege as error:
        detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
        message = f"the database refused: {error.diag.message_primary}{detail}; nothing was changed"
        hint = (
            "the owner needs CREATE on the database; where it may not make roles (a replication role above all), have "
            "them made by whoever may (outbox migrate --roles=print) and use --roles=existing"
        )
        raise Refused(message, hint=hint) from error


def _wait_for_other_migrators(connection: psycopg.Connection, progress: Callable[[str], None]) -> None:
    # Nobody queues behind this lock but migrators, so no timeout of the role or the database may cut it.
    newer = ["transaction_timeout"] if connection.info.server_version >= 170_000 else []
    for name in ("lock_timeout", "statement_timeout", *newer):
        connection.execute("select set_config(%s, '0', true)", [name])
    row = connection.execute("select pg_try_advisory_xact_lock(%s)", [_LOCK]).fetchone()
    if not row or not row[0]:
        progress("waiting for another migration to end")
        connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])


def _refuse_foreign_schema(connection: psycopg.Connection) -> None:
    row = connection.execute(
        "select to_regclass('outbox.schema_migrations') is null from pg_namespace where nspname = 'outbox'"
    ).fetchone()
    if row and row[0] and _has_objects(connection):
        message = "this database has a schema named outbox that is not this product's"
        raise LedgerMismatch(message, hint="rename that schema, or put the ledger into another database")


def _has_objects(connection: psycopg.Connection) -> bool:
    row = connection.execute(
        "select exists (select from pg_class where relnamespace = 'outbox'::regnamespace)"
        " or exists (select from pg_proc where pronamespace = 'outbox'::regnamespace)"
    ).fetchone()
    return bool(row and row[0])


def _apply(connection: psycopg.Connection, found: list[Script], progress: Callable[[str], None]) -> list[str]:
    migrations: dict[int, str] = dict(
        connection.execute("select version, checksum from outbox.schema_migrations").fetchall()
    )
    files: dict[str, str] = dict(connection.execute("select name, checksum from outbox.schema_files").fetchall())
    _refuse_other_history(migrations, found)
    todo = [script for script in found if _is_due(script, migrations, files)]
    if not todo:
        return []
    # Grants name functions one by one, so they are given again whenever anything changed.
    todo += [script for script in found if script.name == "roles.sql" and script not in todo]
    # Functions name each other in any order: first without looking inside, then once more with every body checked.
    connection.execute("set local check_function_bodies = off")
    for script in todo:
        progress(f"applying {script.name}")
        _run(connection, script.text)
        table, columns, values = _receipt(script)
        key = "name" if script.version is None else "version"
        receipt = f"insert into outbox.{table} ({columns}) values ({values})"  # noqa: S608 - from shipped files
        renewal = f" on conflict ({key}) do update set checksum = excluded.checksum, applied_at = clock_timestamp()"
        _run(connection, receipt + renewal)
    connection.execute("set local check_function_bodies = on")
    for script in todo:
        if script.name.startswith("functions/"):
            _run(connection, script.text)
    return [script.name for script in todo]


def _is_due(script: Script, migrations: Mapping[int, str], files: Mapping[str, str]) -> bool:
    if script.version is not None:
        return script.version not in migrations
    return files.get(script.name) != script.checksum


def _refuse_other_history(migrations: Mapping[int, str], found: list[Script]) -> None:
    newest = max(migrations, default=0)
    if newest > SCHEMA_VERSION:
        message = f"this ledger is at version {newest}, this program knows {SCHEMA_VERSION}"
        raise LedgerMismatch(message, hint="upgrade the program; a ledger is never taken back")
    for script in found:
        if script.version is not None and migrations.get(script.version, script.checksum) != script.checksum:
            message = f"{script.name} was applied with another content"
            raise LedgerMismatch(message, hint="a migration never changes: restore the file, or add a new one")


def _settle_environment(connection: psycopg.Connection, environment: str) -> None:
    connection.execute(
        "insert into outbox.ledger (environment) values (%s) on conflict (singleton) do nothing", [environment]
    )
    row = connection.execute("select environment from outbox.ledger").fetchone()
    if row and row[0] != environment:
        message = f"this ledger belongs to the environment {row[0]!r}, not {environment!r}"
        raise LedgerMismatch(message, hint="set OUTBOX_ENVIRONMENT to the ledger's, or use another database")


def _run(connection: psycopg.Connection, text: str) -> None:
    # Whole files, without parameters: many statements and literal percent signs are then fine.
    connection.execute(text.encode())
