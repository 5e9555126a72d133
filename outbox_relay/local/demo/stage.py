"""What the demonstration plays on: the real stack, a fresh ledger, two simulated providers, relay and reconciler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from outbox_relay.capture.connect_api import ConnectApi
from outbox_relay.capture.connector import Connector, apply
from outbox_relay.capture.topic import ensure_topics
from outbox_relay.ledger.migrate import migrate
from outbox_relay.local.demo.terminal import Terminal
from outbox_relay.local.stack import Stack
from outbox_relay.trial.grounds import TrialLedger
from outbox_relay.trial.processes import HttpProgram, Profile
from outbox_relay.trial.scenario import ENVIRONMENT, KafkaPlace, Scenario, open_scenario

DATABASE = "outbox_demo"
TOPIC_PREFIX = "demo"
PROVIDERS = ("resend", "github")
PROFILE = Profile("demo", deadline_s=2, lease_s=4, sweep_s=0.5, shortens_contracts=True)
"""Shorter waits than the defaults (10 s, 30 s, 5 s), so that a lost answer is resolved while one watches."""

_BUSINESS = """
create table deployments (number integer primary key, state text not null);
grant select, insert, update on deployments to outbox_agent;
"""


@dataclass
class Stage:
    """Everything that runs."""

    stack: Stack
    ledger: TrialLedger
    scenario: Scenario
    kafka: KafkaPlace | None
    relay: HttpProgram
    reconciler: HttpProgram

    def summary(self) -> dict[str, str]:
        """Addresses and a few commands for somebody who looks around."""
        found = {
            "ledger (owner)": self.ledger.dsn("owner"),
            "ledger (agent)": self.ledger.dsn("agent"),
            "relay": f"{self.relay.url}/metrics",
            "reconciler": f"{self.reconciler.url}/metrics",
            "logs and books": str(self.scenario.folder),
            "look into it": f"OUTBOX_ENVIRONMENT={ENVIRONMENT} OUTBOX_DATABASE_URL={self.ledger.dsn('operator')} "
            ".venv/bin/outbox actions list",
        }
        if self.kafka is not None:
            found["kafka"] = self.kafka.bootstrap_servers
            found["connect"] = self.stack.connect.url
        return found


@contextmanager
def open_stage(build: Path, *, kafka: bool, terminal: Terminal) -> Iterator[Stage]:
    """Start everything, and end all of it at the end of the block."""
    terminal.act("Setting up the real stack on this machine, on loopback only")
    with Stack(build, progress=terminal.progress, name="demo") as stack:
        addresses = stack.start(kafka=kafka)
        terminal.progress(f"data in {addresses.directory} (deleted at the end), logs in {addresses.logs}")
        with psycopg.connect(stack.postgres.dsn(), autocommit=True) as connection:
            connection.execute(f"create database {DATABASE}")
        ledger = TrialLedger(stack.postgres.dsn(DATABASE))
        applied = migrate(ledger.url, environment=ENVIRONMENT)
        terminal.progress(f"outbox migrate: {len(applied)} files")
        with psycopg.connect(ledger.url, autocommit=True) as connection:
            connection.execute(_BUSINESS)
        place = _capture(stack, ledger, terminal) if kafka else None
        folder = build.absolute() / "demo"
        folder.mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob("*.*"):
            left_over.unlink()
        with open_scenario(ledger, folder, providers=PROVIDERS, profile=PROFILE, kafka=place) as scenario:
            terminal.progress(f"simulated providers with books of their own: {', '.join(PROVIDERS)}")
            reconciler = scenario.start_reconciler()
            relay = scenario.start_relay()
            terminal.progress(f"relay {relay.pid} and reconciler {reconciler.pid} are ready")
            yield Stage(stack, ledger, scenario, place, relay, reconciler)


def _capture(stack: Stack, ledger: TrialLedger, terminal: Terminal) -> KafkaPlace:
    connector = Connector(
        name="outbox-demo", slot_name="outbox_demo", topic_prefix=TOPIC_PREFIX, database_url=ledger.dsn("capture")
    )
    bootstrap = stack.broker.bootstrap
    ensure_topics(connector.topics, bootstrap_servers=bootstrap, partitions=12, replication=1, retention_days=1)
    apply(ConnectApi(stack.connect.url), connector)
    terminal.progress(f"outbox connect apply: topic {connector.topics.status}, and the Debezium task runs")
    return KafkaPlace(bootstrap, TOPIC_PREFIX)
