"""A simulated provider: its own process, its own book, and faults on request.

    python -m outbox_relay.trial.provider --contract resend --port 0 --book FILE [--seed N] [--fault accept_then_drop]

Serves the operations and lookups of one contract. What it announces on stdout (JSON lines) are the moments at which a
supervisor may kill somebody; it knows nothing about who calls it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from outbox_relay.errors import OutboxError, UsageError
from outbox_relay.providers.contract import ProviderContract
from outbox_relay.providers.registry import load_contracts
from outbox_relay.trial.admin import Admin
from outbox_relay.trial.faults import Fault, FaultRule
from outbox_relay.trial.front import BODY_BYTES_MAX, Front
from outbox_relay.trial.workshop import Workshop


def announce(event: str, **fields: object) -> None:
    """Tell whoever reads stdout what has just happened."""
    print(json.dumps({"event": event, **fields}), flush=True)


def build_application(workshop: Workshop) -> web.Application:
    """The whole provider as one application: the admin paths and everything else."""
    application = web.Application(client_max_size=BODY_BYTES_MAX)
    front = Front(workshop, announce)
    Admin(workshop, front.gate).add_paths(application)
    application.router.add_route("*", "/{anything:.*}", front.handle)
    return application


async def serve(workshop: Workshop, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    # A caller that goes away ends its handler: nothing is held for a connection that no longer exists.
    runner = web.AppRunner(build_application(workshop), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, host, port, backlog=1024)
    await site.start()
    contract = workshop.contract
    fields = {"provider": contract.name, "contract_version": contract.contract_version, "host": host}
    announce("listening", port=runner.addresses[0][1], seed=workshop.faults.seed, **fields)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
    await runner.cleanup()
    workshop.close()


def find_contract(name: str, contracts_dir: Path | None) -> ProviderContract:
    """A contract by name. Raises UsageError with the names there are."""
    contracts = load_contracts(contracts_dir)
    if name not in contracts:
        raise UsageError(f"there is no contract {name!r}", hint=f"use one of {', '.join(sorted(contracts))}")
    return contracts[name]


def narrowed(contract: ProviderContract, names: Sequence[str]) -> ProviderContract:
    """The contract with some of its operations only; all of them when no name is given. Raises UsageError."""
    unknown = set(names) - set(contract.operations)
    if unknown:
        raise UsageError(f"{contract.name} has no operation {', '.join(sorted(unknown))}")
    chosen = {name: operation for name, operation in contract.operations.items() if name in names or not names}
    return contract.model_copy(update={"operations": chosen})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m outbox_relay.trial.provider", description="A simulated provider.")
    parser.add_argument("--contract", required=True, help="name of a provider contract")
    parser.add_argument("--contracts-dir", type=Path, help="directory with contracts besides the shipped ones")
    parser.add_argument("--operation", action="append", default=[], help="serve only this one; may be repeated")
    parser.add_argument("--book", type=Path, required=True, help="SQLite file for the provider's own record")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free one; the first line says which")
    parser.add_argument("--seed", type=int, default=1, help="for faults by probability")
    parser.add_argument("--fault", type=Fault, choices=list(Fault), help="on every operation, from the start")
    options = parser.parse_args(arguments)
    try:
        contract = narrowed(find_contract(options.contract, options.contracts_dir), options.operation)
    except OutboxError as error:
        print(f"{error}\n{error.hint or ''}", file=sys.stderr)
        return error.exit_code
    workshop = Workshop(contract, options.book, seed=options.seed)
    if options.fault is not None:
        workshop.faults.add(FaultRule(fault=options.fault, times=None))
    asyncio.run(serve(workshop, options.host, options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
