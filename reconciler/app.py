"""The reconciler as a program: its parts put together, from settings to an exit code.

What both programs do at their start and stop is in `outbox_relay/program`. Decides nothing about actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outbox_relay.capture.watch import ConnectorWatch
from outbox_relay.program.accounts import configured_accounts
from outbox_relay.program.signals import StopSignals
from outbox_relay.program.start import connections, run_and_exit
from outbox_relay.program.wakeups import wakeups_for
from outbox_relay.providers.accounts import Account
from outbox_relay.settings import Settings
from outbox_relay.settings import Wakeups as WakeupSource
from outbox_relay.telemetry import Health, LedgerSeries, Logger, ReconcilerMetrics, new_registry
from reconciler.capture_watch import watch_connector
from reconciler.loop import POLL_S, Pulse
from reconciler.pace import Account as AccountKey
from reconciler.pace import BreakerLimits, Pace, PaceLimits
from reconciler.retention import RetentionTerms
from reconciler.running import WAKING_RECORDS, Instruments, Reconciler, Rules
from reconciler.terms import Catalogue, policy_for, terms_of

PROGRAM = "reconciler"
GROUP = "outbox-reconciler"
POOL_SIZE = 6
RATE_PER_S = 50.0
"""Requests per second of an account whose contract and configuration name no rate."""
IN_FLIGHT_MAX = 8
"""Cases of one account that are asked or replayed at the same time, at most."""


def main() -> None:
    """Run the reconciler and exit with its code."""
    run_and_exit(PROGRAM, run)


async def run(settings: Settings, log: Logger) -> int:
    """Run until a signal or a failure; return the exit code. Raises OutboxError when it cannot start."""
    accounts = configured_accounts(settings)
    registry = new_registry(PROGRAM)
    instruments = Instruments(ReconcilerMetrics(registry), LedgerSeries(registry), Health(), log)
    stop = StopSignals(log, learns="conclusions")
    async with connections(
        PROGRAM,
        settings,
        accounts.values(),
        pool_size=POOL_SIZE,
        registry=registry,
        health=instruments.health,
        log=log,
        stop=stop,
    ) as opened:
        if opened is None:
            return 0
        reconciler = Reconciler(
            opened.ledger,
            rules=rules_for(settings, accounts),
            sender=opened.sender,
            pulse=pulse_of(settings),
            sweep_s=settings.sweep_s,
            retention=RetentionTerms(settings.redact_after_days, settings.events_retention_days),
            worker=settings.instance,
            instruments=instruments,
        )
        stop.forward_to(reconciler)
        wakeups = wakeups_for(
            settings,
            group_id=GROUP,
            record_types=WAKING_RECORDS,
            hand_over=reconciler.hand_over,
            metrics=instruments.metrics,
        )
        return await reconciler.run(wakeups, watch_for(settings, instruments))


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
