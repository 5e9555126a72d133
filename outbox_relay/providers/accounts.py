"""The providers file of the platform team: which accounts exist, in which mode, with which credentials.

Becomes `AccountRow`s for the ledger, which hold no secret. A new account is in mode `hold` until somebody decides
otherwise. Files and environment are read here once; a reload is another call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outbox_relay.errors import ContractError
from outbox_relay.ledger.records import AccountRow
from outbox_relay.providers.adapters import Adapter, Signable, find_adapter
from outbox_relay.providers.contract import BaseUrl, ProviderContract
from outbox_relay.providers.credentials import Credentials, CredentialSource
from outbox_relay.providers.registry import refusal

_NAME = r"^[a-z0-9][a-z0-9_.-]{0,62}$"


class AccountDeclaration(BaseModel):
    """One entry of the providers file, as written."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    provider: str
    account: Annotated[str, Field(pattern=_NAME)] = "default"
    mode: Literal["hold", "shadow", "live"] = "hold"
    base_url: BaseUrl | None = None
    identity: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    credentials: dict[str, CredentialSource] = Field(default_factory=dict)
    operations: tuple[str, ...] | None = None
    slots: Annotated[int, Field(ge=1, le=10_000)] | None = None
    rate_per_s: Annotated[float, Field(gt=0)] | None = None
    shared_key_space: bool = False
    retry_limit: Annotated[int, Field(ge=0, le=1000)] = 8
    unordered_after_unknown: bool = False
    review_owner: Annotated[str, Field(min_length=1, max_length=255)]
    allow_recipients: tuple[str, ...] | None = None
    expect_receipts: bool = False


class ProvidersFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    accounts: tuple[AccountDeclaration, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Account:
    """One declared account with its contract and its secrets."""

    provider: str
    account: str
    mode: Literal["hold", "shadow", "live"]
    base_url: str
    identity: str
    contract: ProviderContract
    operations: tuple[str, ...]
    credentials: Credentials = field(repr=False)
    slots: int | None = None
    rate_per_s: float | None = None
    key_shared: bool = False
    retry_limit: int = 8
    unordered_after_unknown: bool = False
    review_owner: str = "unassigned"
    allow_recipients: tuple[str, ...] | None = None
    expect_receipts: bool = False
    adapter: Adapter | None = field(default=None, repr=False)

    def rows(self) -> list[AccountRow]:
        """What the ledger must know, one row per operation; no secret among it."""
        return [self._row(name) for name in self.operations]

    def _row(self, name: str) -> AccountRow:
        operation = self.contract.operations[name]
        return AccountRow(
            provider=self.provider,
            account=self.account,
            operation=name,
            mode=self.mode,
            contract_version=self.contract.contract_version,
            base_url=self.base_url,
            account_identity=self.identity,
            key_max_length=operation.idempotency.max_length,
            key_pattern=operation.idempotency.pattern,
            key_shared=self.key_shared,
            recipient_paths=tuple(pointer_steps(pointer) for pointer in operation.recipients),
            payload_max_bytes=operation.limits.payload_max_bytes,
            retry_limit=self.retry_limit,
            unordered_after_unknown=self.unordered_after_unknown,
            receipts_expected=self.expect_receipts and operation.receipts is not None,
            review_owner=self.review_owner,
        )


def pointer_steps(pointer: str) -> tuple[str, ...]:
    """A JSON pointer as its unescaped steps."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def load_accounts(path: Path, contracts: Mapping[str, ProviderContract], environ: Mapping[str, str]) -> list[Account]:
    """Every account of the file. Raises ContractError naming file, field and fix."""
    try:
        declared = yaml.safe_load(path.read_bytes())
    except OSError as error:
        hint = "set OUTBOX_PROVIDERS_FILE to the providers file"
        raise ContractError(f"{path}: cannot be read ({error.strerror})", hint=hint) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ContractError(f"{path}: not readable as YAML: {error}", hint="correct the YAML") from error
    try:
        file = ProvidersFile.model_validate(declared)
    except ValidationError as error:
        raise refusal(str(path), error) from error
    seen: set[tuple[str, str]] = set()
    accounts = []
    for position, declaration in enumerate(file.accounts):
        place = f"{path}: accounts.{position}"
        if (declaration.provider, declaration.account) in seen:
            message = f"{place}: {declaration.provider}/{declaration.account} is declared twice"
            raise ContractError(message, hint="give each account of a provider its own name")
        seen.add((declaration.provider, declaration.account))
        accounts.append(_account(declaration, contracts, environ, place))
    return accounts


def _account(
    given: AccountDeclaration, contracts: Mapping[str, ProviderContract], environ: Mapping[str, str], place: str
) -> Account:
    contract = contracts.get(given.provider)
    if contract is None:
        hint = f"use one of {', '.join(sorted(contracts))}, or mount a contract for it"
        raise ContractError(f"{place}.provider: there is no contract named {given.provider}", hint=hint)
    base_url = given.base_url or contract.base_url
    if base_url is None:
        hint = "write base_url: https://…"
        raise ContractError(f"{place}.base_url: {contract.name} has no address of its own", hint=hint)
    credentials = _credentials(given, contract, environ, place)
    sources = "+".join(source.place for _, source in sorted(given.credentials.items()))
    return Account(
        provider=given.provider,
        account=given.account,
        mode=given.mode,
        base_url=base_url,
        identity=given.identity or f"{base_url} {sources}".strip(),
        contract=contract,
        operations=_operations(given, contract, place),
        credentials=credentials,
        slots=given.slots,
        rate_per_s=given.rate_per_s or contract.limits.rate_per_s,
        key_shared=given.shared_key_space,
        retry_limit=given.retry_limit,
        unordered_after_unknown=given.unordered_after_unknown,
        review_owner=given.review_owner,
        allow_recipients=given.allow_recipients,
        expect_receipts=given.expect_receipts,
        adapter=_adapter(contract, credentials, place),
    )


def _adapter(contract: ProviderContract, credentials: Credentials, place: str) -> Adapter | None:
    """The contract's adapter, once it has signed something with these credentials."""
    if contract.adapter is None:
        return None
    adapter = find_adapter(contract.adapter)
    trial = Signable(
        method="POST",
        url="https://localhost/",
        headers={},
        body=b"{}",
        key="trial",
        credentials=credentials,
        at_unix_s=0,
    )
    try:
        adapter.sign(trial)
    except (ValueError, RuntimeError, LookupError):
        # The library's own message may hold the secret: it is left out, and so is the chain.
        hint = f"check {', '.join(contract.adapter_credentials)}"
        raise ContractError(f"{place}.credentials: the adapter {contract.adapter} cannot sign", hint=hint) from None
    return adapter


def _operations(given: AccountDeclaration, contract: ProviderContract, place: str) -> tuple[str, ...]:
    if given.operations is None:
        return tuple(contract.operations)
    for name in given.operations:
        if name not in contract.operations:
            hint = f"use some of {', '.join(contract.operations)}"
            raise ContractError(f"{place}.operations: {contract.name} has no operation {name}", hint=hint)
    return given.operations


def _credentials(
    given: AccountDeclaration, contract: ProviderContract, environ: Mapping[str, str], place: str
) -> Credentials:
    for name in contract.credentials:
        if name not in given.credentials:
            hint = f"write credentials: {{{name}: {{env: NAME}}}} or {{file: PATH}}"
            raise ContractError(f"{place}.credentials: {contract.name} needs {name}", hint=hint)
    for name in given.credentials:
        if name not in contract.credentials:
            hint = f"{contract.name} uses {', '.join(contract.credentials) or 'none'}"
            raise ContractError(f"{place}.credentials: {contract.name} has no credential {name}", hint=hint)
    return Credentials(
        {name: source.read(environ, field=f"{place}.credentials.{name}") for name, source in given.credentials.items()}
    )
