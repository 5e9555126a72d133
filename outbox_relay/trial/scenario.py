"""One stage for a trial: a ledger, simulated providers, their accounts, and the programs that are watched or killed.

It plays the agent (under the agent's role), the administrator (under the owner's) and the supervisor. It never does
the work of a relay or a reconciler.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import LiteralString, Protocol

import psycopg

from outbox_relay.errors import ConditionNotMet
from outbox_relay.trial.declared import DeclaredAccount, declare
from outbox_relay.trial.place import SimulatedProvider
from outbox_relay.trial.processes import TEST_PROFILE, HttpProgram, Profile, start_python, wait_for_none_left
from outbox_relay.trial.samples import Sample, sample_of
from outbox_relay.trial.tempo import write_contracts

ENVIRONMENT = "test"
SECRET_VARIABLE = "TRIAL_SECRET"  # noqa: S105 - the name of a variable
SECRET = "dHJpYWwtc2VjcmV0LXRyaWFsLXNlY3JldC10cmlhbA=="  # noqa: S105 - simulated providers take any; signers want base64
SETTLED_DELIVERIES = (
    "delivery_confirmed",
    "delivery_rejected",
    "reconciled_confirmed",
    "reconciled_failed",
    "abandoned",
    "not_sent",
)

OPEN: LiteralString = (
    "starts_with(a.idempotency_key, %s) and not a.delivery_state = any (%s)"
    " and not exists (select from outbox.reviews r where r.action_id = a.action_id and r.closed_at is null)"
)


class LedgerPlace(Protocol):
    """Where a migrated ledger is."""

    def dsn(self, role: str) -> str:
        """A libpq URL for owner, agent, relay, reconciler, operator or capture."""


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """Where the status topic is; its connector runs already."""

    bootstrap_servers: str
    topic_prefix: str

    @property
    def environ(self) -> dict[str, str]:
        """The settings of a program that is woken by it."""
        return {
            "OUTBOX_WAKEUPS": "kafka",
            "OUTBOX_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "OUTBOX_TOPIC_PREFIX": self.topic_prefix,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """One action as the ledger has it."""

    key: str
    action_id: str
    execution_state: str
    delivery_state: str
    attempts: int
    provider_id: str | None
    resolution: str | None
    reason: str | None
    duplicate_suspected: bool
    in_review: bool


@dataclass
class Scenario:
    """Made by `open_scenario`."""

    ledger: LedgerPlace
    folder: Path
    profile: Profile
    providers: dict[str, SimulatedProvider]
    environ: dict[str, str]
    _stack: ExitStack = field(repr=False)

    # ---- The agent ------------------------------------------------------------------------------------------------

    def add(
        self,
        provider: str,
        keys: Sequence[str],
        *,
        roll_back: bool = False,
        sample: Sample | None = None,
        account: str = "default",
    ) -> None:
        """Insert one action per key in one transaction, as an agent does, and commit or roll back."""
        sample = sample or sample_of(provider)
        rows = [(sample.provider, sample.operation, account, key, json.dumps(sample.worded(key))) for key in keys]
        with psycopg.connect(self.ledger.dsn("agent")) as connection, connection.cursor() as cursor:
            cursor.executemany(
                "insert into outbox.outbound_actions (provider, operation, account, idempotency_key, payload)"
                " values (%s, %s, %s, %s, %s)",
                rows,
            )
            if roll_back:
                connection.rollback()

    # ---- The supervisor -------------------------------------------------------------------------------------------

    def start_relay(self, name: str = "relay", **environ: str) -> HttpProgram:
        """Start a relay and wait until it is ready; it ends with the scenario. `environ` adds settings."""
        return self.begin_relay(name, **environ).wait_ready()

    def begin_relay(self, name: str, **environ: str) -> HttpProgram:
        """Start a relay that may not become ready."""
        return self._start(name, "outbox_relay", "relay", environ)

    def start_reconciler(self, name: str = "reconciler", **environ: str) -> HttpProgram:
        """Start a reconciler and wait until it is ready; it ends with the scenario."""
        return self.begin_reconciler(name, **environ).wait_ready()

    def begin_reconciler(self, name: str = "reconciler", **environ: str) -> HttpProgram:
        """Start a reconciler that may not become ready."""
        # What it decides is read from its log afterwards.
        return self._start(name, "reconciler", "reconciler", {"OUTBOX_LOG_LEVEL": "debug", **environ})

    def _start(self, name: str, module: str, role: str, environ: Mapping[str, str]) -> HttpProgram:
        settings = {**self.environ, "OUTBOX_DATABASE_URL": self.ledger.dsn(role), "OUTBOX_INSTANCE": name, **environ}
        return self._stack.enter_context(start_python(name, module, folder=self.folder, env=settings))

    # ---- The administrator ----------------------------------------------------------------------------------------

    def declare(self, accounts: Sequence[DeclaredAccount]) -> None:
        """Write the providers file anew and apply it; programs that run with another one must be restarted."""
        declare(accounts, environ=self.environ, dsn=self.ledger.dsn("owner"))

    def standings(self, prefix: str = "") -> list[Standing]:
        """Every action whose key begins with `prefix`, in order of the key."""
        with psycopg.connect(self.ledger.dsn("owner")) as connection:
            rows = connection.execute(
                "select a.idempotency_key, a.action_id::text, a.execution_state, a.delivery_state, a.attempt_count,"
                " a.provider_id, a.resolution, a.last_reason, a.duplicate_suspected,"
                " exists (select from outbox.reviews r where r.action_id = a.action_id and r.closed_at is null)"
                " from outbox.outbound_actions a where starts_with(a.idempotency_key, %s) order by 1",
                [prefix],
            ).fetchall()
        return [Standing(*row) for row in rows]

    def count(self, condition: LiteralString, *values: object) -> int:
        """How many actions meet an SQL condition."""
        statement: LiteralString = "select count(*) from outbox.outbound_actions a where "
        with psycopg.connect(self.ledger.dsn("owner")) as connection:
            row = connection.execute(statement + condition, values).fetchone()
        return int(row[0]) if row else 0

    def wait_for_count(
        self, number: int, condition: LiteralString, *values: object, timeout_s: float, what: str
    ) -> None:
        """Wait until at least so many actions meet an SQL condition; `timeout_s` bounds a standstill."""
        wait_for_none_left(
            lambda: max(0, number - self.count(condition, *values)), patience_s=timeout_s, what=what, poll_s=0.1
        )

    def settled(self, prefix: str = "") -> bool:
        """Whether every action is settled or has an open review."""
        return not self._open(prefix)

    def _open(self, prefix: str) -> int:
        return self.count(OPEN, prefix, list(SETTLED_DELIVERIES))

    def wait_settled(self, *, prefix: str = "", timeout_s: float) -> None:
        """Wait until every action is settled or has an open review; `timeout_s` bounds a standstill."""
        what = "every action to be settled"
        try:
            wait_for_none_left(lambda: self._open(prefix), patience_s=timeout_s, what=what, poll_s=0.1)
        except ConditionNotMet as error:
            found = self.standings(prefix)
            left = [each for each in found if each.delivery_state not in SETTLED_DELIVERIES and not each.in_review]
            raise ConditionNotMet(f"{error}; {len(left)} are open, the first is {left[:1]}") from error

    def reasons_for_unknown(self, prefix: str) -> dict[str, set[str]]:
        """Per action, the reason classes with which a worker left it unknown."""
        with psycopg.connect(self.ledger.dsn("owner")) as connection:
            rows = connection.execute(
                "select a.idempotency_key, e.data::json ->> 'reason' from outbox.action_events e"
                " join outbox.outbound_actions a using (action_id) where starts_with(a.idempotency_key, %s)"
                " and e.data::json ->> 'event' in ('response_lost', 'claim_expired')",
                [prefix],
            ).fetchall()
        found: dict[str, set[str]] = {}
        for key, reason in rows:
            found.setdefault(key, set()).add(reason)
        return found

    def late_acceptances(self, kind: str = "late_acceptance") -> int:
        """How many actions have an acceptance of a kind as evidence: of a relay, or a "replay", without its claim."""
        return self._count_evidence("e.proves = 'acceptance' and e.kind = %s", kind)

    def unused_acceptances(self) -> int:
        """How many actions have an acceptance that nobody has used."""
        return self._count_evidence("e.proves = 'acceptance' and e.used_at is null")

    def _count_evidence(self, condition: LiteralString, *values: object) -> int:
        statement: LiteralString = "select count(distinct e.action_id) from outbox.evidence e where "
        with psycopg.connect(self.ledger.dsn("owner")) as connection:
            row = connection.execute(statement + condition, values).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def locked_queue(self, prefix: str) -> Iterator[None]:
        """Hold the queue rows of some actions, so that every write about them hangs."""
        with psycopg.connect(self.ledger.dsn("owner")) as connection:
            connection.execute(
                "select q.action_id from outbox.work_queue q join outbox.outbound_actions a using (action_id)"
                " where starts_with(a.idempotency_key, %s) order by q.action_id for update of q",
                [prefix],
            )
            yield
            connection.rollback()

    def waiting_for_locks(self, role: str) -> int:
        """How many sessions of a role wait for a lock in this ledger."""
        return self._sessions(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and usename = %s and wait_event_type = 'Lock'",
            role,
        )

    def end_sessions(self, role: str) -> int:
        """Cut every connection of a role to this ledger, as the death of its machine would."""
        # Materialised: the planner may otherwise end sessions before it has looked whose they are.
        return self._sessions(
            "with chosen as materialized (select pid from pg_stat_activity"
            " where datname = current_database() and usename = %s)"
            " select count(pg_terminate_backend(pid, 5000)) from chosen",
            role,
        )

    def _sessions(self, statement: LiteralString, role: str) -> int:
        user = psycopg.conninfo.conninfo_to_dict(self.ledger.dsn(role))["user"]
        with psycopg.connect(self.ledger.dsn("owner")) as connection:
            row = connection.execute(statement, [user]).fetchone()
        return int(row[0]) if row else 0


@contextmanager
def open_scenario(
    ledger: LedgerPlace,
    folder: Path,
    *,
    providers: Sequence[str],
    profile: Profile = TEST_PROFILE,
    kafka: KafkaPlace | None = None,
    seed: int = 1,
    base_urls: Mapping[str, str] | None = None,
    secret: str = SECRET,
) -> Iterator[Scenario]:
    """Set the stage. `base_urls` puts other servers, which know `secret`, in the place of simulated providers."""
    contracts_dir = write_contracts(providers, folder / "contracts", profile)
    with ExitStack() as stack:
        places = {
            name: stack.enter_context(
                SimulatedProvider.start(name, folder=folder, contracts_dir=contracts_dir, seed=seed)
            )
            for name in providers
            if name not in (base_urls or {})
        }
        urls = {name: place.url for name, place in places.items()} | dict(base_urls or {})
        file = folder / "providers.yaml"
        environ = {
            SECRET_VARIABLE: secret,
            "OUTBOX_ENVIRONMENT": ENVIRONMENT,
            "OUTBOX_PROVIDERS_FILE": str(file),
            "OUTBOX_CONTRACTS_DIR": str(contracts_dir),
            "OUTBOX_LISTEN": "127.0.0.1:0",
            "OUTBOX_LOG_FORMAT": "json",
            "OUTBOX_PROVIDER_DEADLINE_S": str(profile.deadline_s),
            "OUTBOX_LEASE_S": str(profile.lease_s),
            "OUTBOX_SWEEP_S": str(profile.sweep_s),
            "OUTBOX_WAKEUPS": "ledger",
            **(kafka.environ if kafka is not None else {}),
        }
        scenario = Scenario(ledger, folder, profile, places, environ, stack)
        scenario.declare([DeclaredAccount(name, url, SECRET_VARIABLE) for name, url in urls.items()])
        yield scenario
