"""The accounts that a program was given, and whether the ledger knows the same ones.

A program never sends under an account that the ledger knows otherwise: it would answer for somebody else's key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from outbox_relay.errors import LedgerMismatch
from outbox_relay.ledger.accounts import differences
from outbox_relay.ledger.pool import Ledger
from outbox_relay.providers.accounts import Account, load_accounts
from outbox_relay.providers.registry import load_contracts
from outbox_relay.settings import Settings


def configured_accounts(settings: Settings) -> dict[tuple[str, str], Account]:
    """The accounts of the providers file under their contracts, by provider and account. Raises SettingsError."""
    contracts = load_contracts(settings.contracts_dir)
    accounts = load_accounts(settings.needed_providers_file(), contracts, os.environ)
    return {(account.provider, account.account): account for account in accounts}


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
