"""`outbox migrate` and `outbox providers`: what the owner of the ledger does."""

from __future__ import annotations

import asyncio
import os
import sys
from enum import StrEnum

import typer

from outbox_relay.cli.output import say, show_json, show_rows, wants_json
from outbox_relay.errors import ConditionNotMet
from outbox_relay.ledger.accounts import differences
from outbox_relay.ledger.migrate import migrate, printed
from outbox_relay.ledger.pool import open_ledger
from outbox_relay.ledger.records import AccountRow
from outbox_relay.ledger.roles import Platform, RoleNames, create_roles_sql
from outbox_relay.providers.accounts import load_accounts
from outbox_relay.providers.registry import load_contracts
from outbox_relay.settings import Settings, load_settings

providers = typer.Typer(no_args_is_help=True, help="The accounts that agents may use, and their contracts.")


class Roles(StrEnum):
    """What `--roles` takes."""

    CREATE = "create"
    EXISTING = "existing"
    PRINT = "print"


def migrate_command(  # noqa: PLR0917 - options of a command are all positional to Python
    print_only: bool = typer.Option(False, "--print", help="Print the SQL of a fresh install; connect to nothing."),
    roles: Roles = typer.Option(Roles.CREATE, help="Make the roles, expect them, or print the SQL that makes them."),
    platform: Platform = typer.Option(Platform.OWN, help="Who runs the PostgreSQL: how the roles are made."),
    testing: bool = typer.Option(False, help="Add outbox_testing.settle; refused outside the environment test."),
    agent_role: str = typer.Option("outbox_agent", help="Name of the role that agents use."),
    relay_role: str = typer.Option("outbox_relay", help="Name of the relay's role."),
    reconciler_role: str = typer.Option("outbox_reconciler", help="Name of the reconciler's role."),
    operator_role: str = typer.Option("outbox_operator", help="Name of the operators' role."),
    capture_role: str = typer.Option("outbox_capture", help="Name of the role that Debezium uses."),
) -> None:
    """Install or upgrade the ledger at OUTBOX_DATABASE_URL (as its owner).

    With --roles=create a role's password is taken from OUTBOX_PASSWORD_AGENT, _RELAY, _RECONCILER, _OPERATOR and
    _CAPTURE when set.
    """
    names = RoleNames(agent_role, relay_role, reconciler_role, operator_role, capture_role)
    if roles is Roles.PRINT:
        sys.stdout.write(create_roles_sql(names, platform))
        return
    settings = load_settings()
    environment = settings.needed_environment()
    if testing and environment != "test":
        raise ConditionNotMet(
            "--testing belongs into a test ledger only", hint="set OUTBOX_ENVIRONMENT=test, or leave --testing out"
        )
    if print_only:
        sys.stdout.write(printed(environment=environment, roles=names, testing=testing))
        return
    passwords = {
        part: os.environ[f"OUTBOX_PASSWORD_{part.upper()}"]
        for part, _ in names.items()
        if f"OUTBOX_PASSWORD_{part.upper()}" in os.environ
    }
    applied = migrate(
        settings.dsn(),
        environment=environment,
        roles=names,
        create_roles=roles is Roles.CREATE,
        platform=platform,
        testing=testing,
        passwords=passwords,
        progress=lambda doing: None if wants_json() else say(doing),
    )
    if wants_json():
        show_json({"applied": applied})
    else:
        say(f"applied {len(applied)} files" if applied else "the ledger is up to date")


def _configured(settings: Settings) -> list[AccountRow]:
    contracts = load_contracts(settings.contracts_dir)
    accounts = load_accounts(settings.needed_providers_file(), contracts, os.environ)
    return [row for account in accounts for row in account.rows()]


@providers.command("apply")
def apply_command(
    dry_run: bool = typer.Option(False, help="Say what would change, and change nothing."),
) -> None:
    """Declare in the ledger what OUTBOX_PROVIDERS_FILE says (as the ledger's owner)."""
    asyncio.run(_apply(load_settings(), dry_run=dry_run))


async def _apply(settings: Settings, *, dry_run: bool) -> None:
    configured = _configured(settings)
    async with open_ledger(
        settings.dsn(), environment=settings.needed_environment(), application="outbox providers apply", max_size=1
    ) as ledger:
        changes = differences(await ledger.accounts.rows(), configured)
        if changes and not dry_run:
            await ledger.accounts.apply(configured)
    if wants_json():
        show_json({"changes": changes, "applied": bool(changes) and not dry_run})
        return
    for change in changes:
        say(change)
    done = "would change" if dry_run else "applied"
    say(
        f"{done}: {len(changes)} differences, {len(configured)} operations declared" if changes else "nothing to change"
    )


@providers.command("list")
def list_command() -> None:
    """List what is declared in the ledger."""
    asyncio.run(_list(load_settings()))


async def _list(settings: Settings) -> None:
    async with open_ledger(
        settings.dsn(), environment=settings.needed_environment(), application="outbox providers list", max_size=1
    ) as ledger:
        rows = await ledger.accounts.rows()
    columns = ("provider", "account", "operation", "mode", "contract_version", "base_url", "review_owner")
    show_rows(rows, columns, empty="nothing is declared: outbox providers apply")


@providers.command("contracts")
def contracts_command() -> None:
    """List the provider contracts that this installation knows."""
    found = [
        {
            "provider": name,
            "type": str(contract.type),
            "version": contract.version,
            "checked_on": str(contract.checked_on),
            "operations": ", ".join(contract.operations),
        }
        for name, contract in sorted(load_contracts(load_settings().contracts_dir).items())
    ]
    show_rows(found, ("provider", "type", "version", "checked_on", "operations"), empty="no contracts")
