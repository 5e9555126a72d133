"""The relay as a program: settings in, an exit code out.

Puts the parts together, waits for a ledger that is not there yet, refuses one that does not fit, and stops in good
order on SIGTERM and SIGINT. Decides nothing about actions.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial

from outbox_relay.attempt.send import Sender, open_http_client
from outbox_relay.capture.wakeups import Wakeups
from outbox_relay.dispatch.demand import AccountKey
from outbox_relay.dispatch.limits import AccountGate, Limits
from outbox_relay.dispatch.loop import Timing
from outbox_relay.dispatch.relay import WAKING_RECORDS, Instruments, Relay
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
    Logger,
    Readiness,
    RelayMetrics,
    configure_logging,
    describe_error,
    get_logger,
    log_failure,
    new_registry,
    release,
)

PROGRAM = "relay"
GROUP = "outbox-relay"
START_RETRY_MAX_S = 5.0
OLD_AFTER_SWEEPS = 3
"""Records older than this many sweeps are skipped: the sweep has looked at their actions already."""
POOL_SIZE = 4
"""One claim, one outcome write, one to spare, and one for the probe."""


def main() -> None:
    """Run the relay and exit with its code."""
    configure_logging(program=PROGRAM, instance="starting")
    log = get_logger("relay")
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
    instruments = Instruments(RelayMetrics(registry), Health(), log)
    kafka = consumer_settings(settings) if settings.wakeups is WakeupSource.KAFKA else None
    for wrong, meant in suspicious_variables(os.environ).items():
        log.warning("setting_ignored", variable=wrong, probably_meant=meant)
    stop = StopSignals(log)
    host, port = settings.listen_address
    instruments.health.report("ledger", Readiness.NOT_READY, "not asked yet")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(HealthServer(instruments.health, registry, host=host, port=port))
        log.info("listening", host=host, port=server.port, version=release())
        ledger = await ledger_when_there(settings, stack, instruments, stop.requested)
        if ledger is None:
            return 0
        if mismatch := await misfit(ledger, accounts.values()):
            raise mismatch
        client = await stack.enter_async_context(open_http_client())
        relay = Relay(
            ledger.claims,
            ledger.outcomes,
            accounts=accounts,
            gates=gates_for(accounts, settings.slots),
            sender=Sender(client),
            misfit=partial(misfit, ledger, accounts.values()),
            timing=timing_of(settings),
            worker=settings.instance,
            instruments=instruments,
        )
        wakeups = None if kafka is None else wakeups_for(kafka, settings, relay, instruments.metrics)
        stop.forward_to(relay)
        return await relay.run(wakeups)


class StopSignals:
    """The first SIGTERM or SIGINT stops in good order, the second at once."""

    def __init__(self, log: Logger) -> None:
        self.requested = asyncio.Event()
        self._log = log
        self._relay: Relay | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)

    def forward_to(self, relay: Relay) -> None:
        """From now on a signal stops this relay."""
        self._relay = relay
        if self.requested.is_set():
            relay.stop()

    def _received(self, number: signal.Signals) -> None:
        if self.requested.is_set():
            unstored = self._relay.unstored if self._relay else 0
            self._log.error("stopped_at_once", signal=number.name, outcomes_lost=unstored)
            os._exit(128 + number)
        self._log.info("stop_requested", signal=number.name)
        self.requested.set()
        if self._relay is not None:
            self._relay.stop()


def configured_accounts(settings: Settings) -> dict[AccountKey, Account]:
    """The accounts of the providers file under their contracts."""
    contracts = load_contracts(settings.contracts_dir)
    accounts = load_accounts(settings.needed_providers_file(), contracts, os.environ)
    return {(account.provider, account.account): account for account in accounts}


def gates_for(accounts: Mapping[AccountKey, Account], slots: int) -> dict[AccountKey, AccountGate]:
    """One gate per account; what the contract says the provider bears is the most an account gets by default."""
    now = time.monotonic()
    gates = {}
    for key, account in accounts.items():
        bearable = account.contract.limits.concurrency
        by_default = slots if bearable is None else min(slots, bearable)
        gates[key] = AccountGate(Limits(account.slots or by_default, account.rate_per_s), now=now)
    return gates


def timing_of(settings: Settings) -> Timing:
    """The durations of the loops."""
    return Timing(
        lease_s=settings.lease_s,
        deadline_s=settings.provider_deadline_s,
        sweep_s=settings.sweep_s,
        linger_s=settings.linger_s,
        polling=settings.wakeups is WakeupSource.LEDGER,
    )


async def ledger_when_there(
    settings: Settings, stack: AsyncExitStack, instruments: Instruments, stopping: asyncio.Event
) -> Ledger | None:
    """Open the ledger, waiting for it as long as it takes; None when told to stop. Raises LedgerMismatch."""
    dsn, environment = settings.dsn(), settings.needed_environment()
    delay_s = 0.2
    while not stopping.is_set():
        opening = stack.enter_async_context(
            open_ledger(
                dsn,
                environment=environment,
                application=f"outbox-{PROGRAM}",
                max_size=POOL_SIZE,
                notify=settings.notify,
            )
        )
        try:
            return await unless_stopped(opening, stopping)
        except LedgerUnavailable as error:
            instruments.log.warning("ledger_unavailable", error=describe_error(error), hint=error.hint)
            advice = "check the database and OUTBOX_DATABASE_URL; this program waits for it"
            instruments.health.report("ledger", Readiness.NOT_READY, "PostgreSQL cannot be reached", advice)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await stopping.wait()
        delay_s = min(START_RETRY_MAX_S, delay_s * 2)
    return None


async def unless_stopped(opening: Coroutine[None, None, Ledger], stopping: asyncio.Event) -> Ledger | None:
    """Await `opening`; None when told to stop before it is done."""
    task = asyncio.ensure_future(opening)
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if task.done():
        return task.result()
    task.cancel()
    with suppress(asyncio.CancelledError, LedgerUnavailable):
        await task
    return None


async def misfit(ledger: Ledger, accounts: Iterable[Account]) -> LedgerMismatch | None:
    """How the ledger's accounts differ from those that this program was given; None when they do not."""
    configured = [row for account in accounts for row in account.rows()]
    found = differences(await ledger.accounts.rows(), configured)
    if not found:
        return None
    return LedgerMismatch(
        "the providers file and the ledger differ: " + "; ".join(found),
        hint="run: outbox providers apply (with the providers file that is right), then start again",
    )


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What the Kafka consumer needs, checked before anything is started."""

    bootstrap_servers: str
    group_id: str


def consumer_settings(settings: Settings) -> ConsumerSettings:
    """Raises SettingsError when the brokers are not named."""
    return ConsumerSettings(settings.needed_bootstrap_servers(), settings.kafka_group_id or GROUP)


def wakeups_for(kafka: ConsumerSettings, settings: Settings, relay: Relay, metrics: RelayMetrics) -> Wakeups:
    """The consumer that wakes this relay."""
    return Wakeups(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=kafka.group_id,
        topic=settings.topic,
        record_types=WAKING_RECORDS,
        hand_over=relay.hand_over,
        max_age_s=OLD_AFTER_SWEEPS * settings.sweep_s,
        options=settings.kafka_options,
        on_records=lambda use, count: metrics.kafka_records.labels(use).inc(count),
        on_poll=metrics.poll_gap_seconds.observe,
    )
