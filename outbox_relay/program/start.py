"""From the environment to a program that can work: settings, logs, pages, a ledger that fits, an HTTP client.

It waits for a ledger that is not there yet, as long as it takes, and refuses one that does not fit. Decides nothing
about actions.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from prometheus_client import CollectorRegistry

from outbox_relay.attempt.send import Sender, open_http_client
from outbox_relay.errors import LedgerUnavailable, OutboxError
from outbox_relay.ledger.pool import Ledger, open_ledger
from outbox_relay.program.accounts import misfit
from outbox_relay.program.memory import settle
from outbox_relay.program.signals import StopSignals
from outbox_relay.providers.accounts import Account
from outbox_relay.settings import Settings, Wakeups, load_settings, suspicious_variables
from outbox_relay.telemetry import (
    Health,
    HealthServer,
    Logger,
    Readiness,
    configure_logging,
    describe_error,
    get_logger,
    log_failure,
    release,
)

RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0


def run_and_exit(program: str, run: Callable[[Settings, Logger], Coroutine[None, None, int]]) -> NoReturn:
    """Run the program and exit with its code: what it returns, or what the error that ends it says."""
    configure_logging(program=program, instance="starting")
    log = get_logger(program)
    try:
        settings = load_settings()
        configure_logging(
            program=program, instance=settings.instance, log_format=settings.log_format, level=settings.log_level
        )
        for wrong, meant in suspicious_variables(os.environ).items():
            log.warning("setting_ignored", variable=wrong, probably_meant=meant)
        code = asyncio.run(run(settings, log))
    except OutboxError as error:
        log_failure(log, "cannot_run", error)
        code = error.exit_code
    except Exception as error:  # noqa: BLE001 - the top of the program: say what it died of, and die
        log_failure(log, "crashed", error)
        code = 1
    sys.exit(code)


@dataclass(frozen=True, slots=True)
class Connections:
    """What a program works with, open."""

    ledger: Ledger
    sender: Sender


@asynccontextmanager
async def connections(
    program: str,
    settings: Settings,
    accounts: Iterable[Account],
    *,
    pool_size: int,
    registry: CollectorRegistry,
    health: Health,
    log: Logger,
    stop: StopSignals,
) -> AsyncIterator[Connections | None]:
    """Serve the pages, then open the ledger and the client; None when told to stop before.

    Raises SettingsError before anything is opened, and LedgerMismatch.
    """
    if settings.wakeups is Wakeups.KAFKA:
        settings.needed_bootstrap_servers()
    host, port = settings.listen_address
    async with HealthServer(health, registry, host=host, port=port) as server, AsyncExitStack() as stack:
        log.info("listening", host=host, port=server.port, version=release())

        def opening() -> Coroutine[None, None, Ledger]:
            return stack.enter_async_context(
                open_ledger(
                    settings.dsn(),
                    environment=settings.needed_environment(),
                    application=f"outbox-{program}",
                    max_size=pool_size,
                    notify=settings.notify,
                )
            )

        ledger = await _ledger_when_there(opening, health=health, log=log, stopping=stop.requested)
        if ledger is None:
            yield None
            return
        if mismatch := await misfit(ledger, accounts):
            raise mismatch
        opened = Connections(ledger, Sender(await stack.enter_async_context(open_http_client())))
        settle()
        yield opened


async def _ledger_when_there(
    opening: Callable[[], Coroutine[None, None, Ledger]], *, health: Health, log: Logger, stopping: asyncio.Event
) -> Ledger | None:
    """Open the ledger, waiting for it as long as it takes; None when told to stop. Raises LedgerMismatch."""
    health.report("ledger", Readiness.NOT_READY, "not asked yet")
    delay_s = RETRY_FIRST_S
    while not stopping.is_set():
        try:
            return await _unless_stopped(opening(), stopping)
        except LedgerUnavailable as error:
            log.warning("ledger_unavailable", error=describe_error(error), hint=error.hint)
            advice = "check the database and OUTBOX_DATABASE_URL; this program waits for it"
            health.report("ledger", Readiness.NOT_READY, "PostgreSQL cannot be reached", advice)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await stopping.wait()
        delay_s = min(RETRY_MAX_S, delay_s * 2)
    return None


async def _unless_stopped(opening: Coroutine[None, None, Ledger], stopping: asyncio.Event) -> Ledger | None:
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
