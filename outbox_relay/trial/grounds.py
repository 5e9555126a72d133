"""Where `make drill` sets its stages: a PostgreSQL server, and on it a fresh ledger and a folder for every drill.

The database is dropped when the drill is over; logs and books stay, because a failed drill is read there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from outbox_relay.ledger.migrate import RoleNames, migrate
from outbox_relay.trial.processes import Profile
from outbox_relay.trial.scenario import ENVIRONMENT, Scenario, open_scenario


@dataclass(frozen=True, slots=True)
class TrialLedger:
    """A ledger of its own in a server where the roles have no passwords."""

    url: str

    def dsn(self, role: str) -> str:
        """The libpq URL of a role; `owner` is whoever the server's URL names."""
        if role == "owner":
            return self.url
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{getattr(RoleNames(), role)}@{place}"))


@dataclass(frozen=True, slots=True)
class Grounds:
    """A server (by its owner's URL) and a folder for logs and books."""

    url: str
    folder: Path

    @contextmanager
    def open_scenario(self, providers: Sequence[str], profile: Profile, url: str | None = None) -> Iterator[Scenario]:
        """Set a stage with a ledger of its own, here or on the server of another owner's URL."""
        url = url or self.url
        name = f"drill_{uuid4().hex[:12]}"
        folder = self.folder / name
        folder.mkdir(parents=True)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            ledger = TrialLedger(urlunsplit(urlsplit(url)._replace(path=f"/{name}")))
            migrate(ledger.url, environment=ENVIRONMENT)
            with open_scenario(ledger, folder, providers=providers, profile=profile) as scenario:
                yield scenario
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
