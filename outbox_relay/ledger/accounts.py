"""Accounts: what the providers file declares, kept in the ledger so that an unknown name is refused at INSERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from outbox_relay.ledger.records import AccountRow
from outbox_relay.ledger.session import Row, Session, as_json


def _account_from(row: Row) -> AccountRow:
    values = {field.name: row[field.name] for field in fields(AccountRow)}
    return AccountRow(**{**values, "recipient_paths": tuple(tuple(path) for path in row["recipient_paths"])})


def differences(declared: Sequence[AccountRow], configured: Sequence[AccountRow]) -> list[str]:
    """Say in words how the ledger's rows differ from a program's configuration; empty when they agree."""

    def keyed(rows: Sequence[AccountRow]) -> dict[tuple[str, str, str], AccountRow]:
        return {(row.provider, row.account, row.operation): row for row in rows}

    ledger, program = keyed(declared), keyed(configured)
    found = [f"{'/'.join(key)} is declared in the ledger only" for key in ledger.keys() - program.keys()]
    found += [f"{'/'.join(key)} is in the providers file only" for key in program.keys() - ledger.keys()]
    for key in ledger.keys() & program.keys():
        names = [
            field.name
            for field in fields(AccountRow)
            if getattr(ledger[key], field.name) != getattr(program[key], field.name)
        ]
        if names:
            found.append(f"{'/'.join(key)} differs in {', '.join(names)}")
    return sorted(found)


class Accounts:
    """One method, one round trip."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def apply(self, rows: Sequence[AccountRow]) -> int:
        """Declare exactly these rows (owner's right); return how many."""
        return int(await self._session.value("select outbox.apply_accounts(%s)", [as_json(rows)]))

    async def rows(self) -> list[AccountRow]:
        """Return what is declared."""
        return [_account_from(row) for row in await self._session.rows("select * from outbox.declared_accounts()")]
