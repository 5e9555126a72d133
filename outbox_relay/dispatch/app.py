"""The relay as a program: its parts put together, from settings to an exit code.

What both programs do at their start and stop is in `outbox_relay/program`. Decides nothing about actions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from outbox_relay.dispatch.demand import AccountKey
from outbox_relay.dispatch.limits import AccountGate, Limits
from outbox_relay.dispatch.loop import Timing
from outbox_relay.dispatch.relay import WAKING_RECORDS, Instruments, Relay
from outbox_relay.program.accounts import configured_accounts, misfit
from outbox_relay.program.signals import StopSignals
from outbox_relay.program.start import connections, run_and_exit
from outbox_relay.program.wakeups import wakeups_for
from outbox_relay.providers.accounts import Account
from outbox_relay.settings import Settings
from outbox_relay.settings import Wakeups as WakeupSource
from outbox_relay.telemetry import Health, Logger, RelayMetrics, new_registry

PROGRAM = "relay"
GROUP = "outbox-relay"
POOL_SIZE = 4
"""One claim, one outcome write, one to spare, and one for the probe."""


def main() -> None:
    """Run the relay and exit with its code."""
    run_and_exit(PROGRAM, run)


async def run(settings: Settings, log: Logger) -> int:
    """Run until a signal or a failure; return the exit code. Raises OutboxError when it cannot start."""
    accounts = configured_accounts(settings)
    registry = new_registry(PROGRAM)
    instruments = Instruments(RelayMetrics(registry), Health(), log)
    stop = StopSignals(log, learns="outcomes")
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
        relay = Relay(
            opened.ledger.claims,
            opened.ledger.outcomes,
            accounts=accounts,
            gates=gates_for(accounts, settings.slots),
            sender=opened.sender,
            misfit=partial(misfit, opened.ledger, accounts.values()),
            timing=timing_of(settings),
            worker=settings.instance,
            instruments=instruments,
        )
        stop.forward_to(relay)
        return await relay.run(
            wakeups_for(
                settings,
                group_id=GROUP,
                record_types=WAKING_RECORDS,
                hand_over=relay.hand_over,
                metrics=instruments.metrics,
            )
        )


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
