"""The administrator of a trial: writes the providers file and applies it, as `outbox providers apply` does.

Credentials are named by the variable that holds them; a value is in no file and in no ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from outbox_relay.ledger.pool import open_ledger
from outbox_relay.providers.accounts import load_accounts
from outbox_relay.providers.registry import load_contracts

REVIEW_OWNER = "trial-oncall"


@dataclass(frozen=True, slots=True)
class DeclaredAccount:
    """One account of the providers file."""

    provider: str
    base_url: str
    secret_variable: str
    """Holds every credential that the contract asks for."""
    account: str = "default"
    mode: str = "live"
    identity: str | None = None

    def entry(self, credentials: Sequence[str]) -> dict[str, object]:
        """As the file has it."""
        entry: dict[str, object] = {
            "provider": self.provider,
            "account": self.account,
            "mode": self.mode,
            "base_url": self.base_url,
            "credentials": {name: {"env": self.secret_variable} for name in credentials},
            "review_owner": REVIEW_OWNER,
        }
        return entry if self.identity is None else entry | {"identity": self.identity}


def declare(accounts: Sequence[DeclaredAccount], *, environ: Mapping[str, str], dsn: str) -> None:
    """Declare these accounts and no others. `environ` is the programs' environment, `dsn` the owner's."""
    file, contracts_dir = Path(environ["OUTBOX_PROVIDERS_FILE"]), Path(environ["OUTBOX_CONTRACTS_DIR"])
    contracts = load_contracts(contracts_dir)
    entries = [each.entry(contracts[each.provider].credentials) for each in accounts]
    file.write_text(yaml.safe_dump({"accounts": entries}, sort_keys=False))
    asyncio.run(_apply(dsn, file, contracts_dir, environ))


async def _apply(dsn: str, file: Path, contracts_dir: Path, environ: Mapping[str, str]) -> None:
    accounts = load_accounts(file, load_contracts(contracts_dir), environ)
    environment = environ["OUTBOX_ENVIRONMENT"]
    async with open_ledger(dsn, environment=environment, application="trial", max_size=1) as opened:
        await opened.accounts.apply([row for account in accounts for row in account.rows()])
