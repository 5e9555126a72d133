"""The reconciler as a program: settings in, an exit code out.

Puts the parts together, waits for a ledger that is not there yet, refuses one that does not fit, and stops in good
order on SIGTERM and SIGINT. Decides nothing about actions.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack

from outbox_relay.attempt.send import Sender, open_http_client
from outbox_relay.capture.wakeups import Wakeups
from outbox_relay.capture.watch import ConnectorWatch
from outbox_relay.errors import LedgerMismatch, LedgerUnavailable, OutboxError
from outbox_relay.ledger.accounts import differences
from outbox_relay.ledger.pool import Ledger, open_ledger
from outbox_relay.providers.accounts import Account, load_accounts
from outbox_relay.providers.registry import load_contracts
from outbox_relay.settings import Settings, load_settings, suspicious_variables
from outbox_relay.settings import Wakeups as WakeupSource
from outbox_relay.telemetry import (
    Health,
    HealthServer,
    LedgerSeries,
    Logger,
    Readiness,
    ReconcilerMetrics,
    configure_logging,
    describe_error,
    get_logger,
    log_failure,
    new_registry,
    release,
)
from reconciler.capture_watch import watch_connector
from reconciler.loop import POLL_S, Pulse, pause
from reconciler.pace import BreakerLimits, Pace, PaceLimits
from reconciler.resolve import AccountKey
from reconciler.retention import RetentionTerms
from reconciler.running import WAKING_RECORDS, Instruments, Reconciler, Rules
from reconciler.terms import Catalogue, policy_for, terms_of

PROGRAM = "reconciler"
GROUP = "outbox-reconciler"
START_RETRY_MAX_S = 5.0
OLD_AFTER_SWEEPS = 3
"""Records older than this many sweeps are skipped: the due list has their actions already."""
POOL_SIZE = 6
RATE_PER_S = 50.0
"""Requests per second of an account whose contract and configuration name no rate."""
IN_FLIGHT_MAX = 8
"""Cases of one account that are asked or replayed at the same time, at most."""


def main() -> None:
    """Run the reconciler and exit with its code."""
    configure_logging(program=PROGRAM, instance="starting")
    log = get_logger(PROGRAM)
    try:
        settings = load_settings()
        configure_logging(
            program=PROGRAM, instance=settings.instance, log_format=settings.log_format, level=settings.log_level
        )
        code = asyncio.run(run(settings, log))
    except OutboxError as error:
        log_failure(log, "cannot_run", error)
        code = error.exit_code
    except Exception as error:  # noqa: BLE001 - the top of the program: say what it died of, and die
        log_failure(log, "crashed", error)
        code = 1
    sys.exit(code)


async def run(settings: Settings, log: Logger) -> int:
    """Run until a signal or a failure; return the exit code. Raises OutboxError when it cannot start."""
    accounts = configured_accounts(settings)
    registry = new_registry(PROGRAM)
    instruments = Instruments(ReconcilerMetrics(registry), LedgerSeries(registry), Health(), log)
    bootstrap = settings.needed_bootstrap_servers() if settings.wakeups is WakeupSource.KAFKA else None
    for wrong, meant in suspicious_variables(os.environ).items():
        log.warning("setting_ignored", variable=wrong, probably_meant=meant)
    stop = StopSignals(log)
    host, port = settings.listen_address
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(HealthServer(instruments.health, registry, host=host, port=port))
        log.info("listening", host=host, port=server.port, version=release())
        ledger = await ledger_when_there(settings, stack, instruments, stop.requested)
        if ledger is None:
            return 0
        await refuse_other_accounts(ledger, accounts.values())
        client = await stack.enter_async_context(open_http_client())
        reconciler = Reconciler(
            ledger,
            rules=rules_for(settings, accounts),
            sender=Sender(client),
            pulse=pulse_of(settings),
            sweep_s=settings.sweep_s,
            retention=RetentionTerms(settings.redact_after_days, settings.events_retention_days),
            worker=settings.instance,
            instruments=instruments,
        )
        stop.forward_to(reconciler)
        wakeups = None if bootstrap is None else wakeups_for(bootstrap, settings, reconciler, instruments.metrics)
        return await reconciler.run(wakeups, watch_for(settings, instruments))


class StopSignals:
    """The first SIGTERM or SIGINT stops in good order, the second at once."""

    def __init__(self, log: Logger) -> None:
        self.requested = asyncio.Event()
        self._log = log
        self._reconciler: Reconciler | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)

    def forward_to(self, reconciler: Reconciler) -> None:
        """From now on a signal stops this reconciler."""
        self._reconciler = reconciler
        if self.requested.is_set():
            reconciler.stop()

    def _received(self, number: signal.Signals) -> None:
        if self.requested.is_set():
            unstored = self._reconciler.unstored if self._reconciler else 0
            self._log.error("stopped_at_once", signal=number.name, conclusions_lost=unstored)
            os._exit(128 + number)
        self._log.info("stop_requested", signal=number.name)
        self.requested.set()
        if self._reconciler is not None:
            self._reconciler.stop()


def configured_accounts(settings: Settings) -> dict[AccountKey, Account]:
    """The accounts of the providers file under their contracts."""
    contracts = load_contracts(settings.contracts_dir)
    accounts = load_accounts(settings.needed_providers_file(), contracts, os.environ)
    return {(account.provider, account.account): account for account in accounts}


def rules_for(settings: Settings, accounts: Mapping[AccountKey, Account]) -> Rules:
    """What decisions rest on: the contracts' terms, our own bounds, and each account's pace."""
    deadline_s = settings.provider_deadline_s
    return Rules(
        accounts=accounts,
        catalogue=catalogue_of(accounts.values()),
        policy=policy_for(deadline_s),
        pace=Pace({key: pace_of(account) for key, account in accounts.items()}, breaker_for(deadline_s)),
    )


def catalogue_of(accounts: Iterable[Account]) -> Catalogue:
    """The terms of everything that is configured."""
    return Catalogue(
        {
            (row.provider, row.account, row.operation): terms_of(account.contract, row)
            for account in accounts
            for row in account.rows()
        }
    )


def breaker_for(deadline_s: float) -> BreakerLimits:
    """Probes of an account in trouble: once a second at first and every 30 s at last, at the default deadline."""
    return BreakerLimits(probe_first_s=deadline_s / 10, probe_max_s=deadline_s * 3)


def pace_of(account: Account) -> PaceLimits:
    """What the contract says the provider bears, or less where the account says so."""
    bearable = min(account.contract.limits.concurrency or IN_FLIGHT_MAX, account.slots or IN_FLIGHT_MAX, IN_FLIGHT_MAX)
    return PaceLimits(account.rate_per_s or RATE_PER_S, bearable)


def pulse_of(settings: Settings) -> Pulse:
    """The durations of the loop."""
    polled = settings.wakeups is WakeupSource.LEDGER
    return Pulse(
        lease_s=settings.lease_s,
        deadline_s=settings.provider_deadline_s,
        idle_s=min(settings.sweep_s, POLL_S) if polled else settings.sweep_s,
        slots=settings.slots,
    )


async def ledger_when_there(
    settings: Settings, stack: AsyncExitStack, instruments: Instruments, stopping: asyncio.Event
) -> Ledger | None:
    """Open the ledger, waiting for it as long as it takes; None when told to stop. Raises LedgerMismatch."""
    dsn, environment = settings.dsn(), settings.needed_environment()
    delay_s = 0.2
    while not stopping.is_set():
        try:
            return await stack.enter_async_context(
                open_ledger(
                    dsn,
                    environment=environment,
                    application=f"outbox-{PROGRAM}",
                    max_size=POOL_SIZE,
                    notify=settings.notify,
                )
            )
        except LedgerUnavailable as error:
            instruments.log.warning("ledger_unavailable", error=describe_error(error), hint=error.hint)
            advice = "check the database and OUTBOX_DATABASE_URL; this program waits for it"
            instruments.health.report("ledger", Readiness.NOT_READY, "PostgreSQL cannot be reached", advice)
        await pause(stopping, delay_s)
        delay_s = min(START_RETRY_MAX_S, delay_s * 2)
    return None


async def refuse_other_accounts(ledger: Ledger, accounts: Iterable[Account]) -> None:
    """Raise LedgerMismatch unless the ledger knows exactly the accounts that this program was given."""
    configured = [row for account in accounts for row in account.rows()]
    found = differences(await ledger.accounts.rows(), configured)
    if found:
        raise LedgerMismatch(
            "the providers file and the ledger differ: " + "; ".join(found),
            hint="run: outbox providers apply (with the providers file that is right), then start again",
        )


def watch_for(settings: Settings, instruments: Instruments) -> ConnectorWatch | None:
    """The watch over the connector, where Kafka is used and Connect's address is known."""
    if settings.wakeups is not WakeupSource.KAFKA or settings.connect_url is None:
        return None
    return watch_connector(
        settings.connect_url,
        settings.connector_name,
        metrics=instruments.metrics,
        health=instruments.health,
        log=instruments.log,
    )


def wakeups_for(bootstrap: str, settings: Settings, reconciler: Reconciler, metrics: ReconcilerMetrics) -> Wakeups:
    """The consumer that wakes this reconciler."""
    return Wakeups(
        bootstrap_servers=bootstrap,
        group_id=settings.kafka_group_id or GROUP,
        topic=settings.topic,
        record_types=WAKING_RECORDS,
        hand_over=reconciler.hand_over,
        max_age_s=OLD_AFTER_SWEEPS * settings.sweep_s,
        options=settings.kafka_options,
        on_records=lambda use, count: metrics.kafka_records.labels(use).inc(count),
        on_poll=metrics.poll_gap_seconds.observe,
    )
