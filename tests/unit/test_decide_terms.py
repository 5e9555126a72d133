"""What decisions take from the shipped contracts, and what they do without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_relay.attempt.request import Request
from outbox_relay.ledger.records import AccountRow
from outbox_relay.providers.accounts import Account
from outbox_relay.providers.contract import ProviderContract
from outbox_relay.providers.credentials import Credentials
from outbox_relay.providers.parts import Step
from outbox_relay.providers.registry import load_contracts
from reconciler.app import catalogue_of
from reconciler.resolve import sends_the_same
from reconciler.terms import Catalogue, NoTerms, Reason, Terms, terms_of
from tests.unit.unknown_cases import CASE, KEYED, evidence

CONTRACTS = load_contracts()


def account_of(contract: ProviderContract) -> Account:
    return Account(
        provider=contract.name,
        account="default",
        mode="live",
        base_url=contract.base_url or "https://example.com",
        identity="team",
        contract=contract,
        operations=tuple(contract.operations),
        credentials=Credentials({}),
        review_owner="owners",
    )


ROWS: list[tuple[ProviderContract, AccountRow]] = [
    (contract, row) for contract in CONTRACTS.values() for row in account_of(contract).rows()
]


@pytest.mark.parametrize(("contract", "row"), ROWS, ids=[f"{row.provider} {row.operation}" for _, row in ROWS])
def test_terms_never_claim_more_than_the_contract(contract: ProviderContract, row: AccountRow) -> None:
    operation, terms = contract.operations[row.operation], terms_of(contract, row)
    assert isinstance(terms, Terms)
    assert Step.PERSON not in terms.order
    assert terms.contract_version == contract.contract_version
    if terms.replay is not None:
        retention_s = operation.idempotency.retention_s
        assert terms.replay.published == isinstance(retention_s, float)
        assert not isinstance(retention_s, float) or terms.replay.window_s <= retention_s
    if terms.lookup is not None and terms.lookup.authoritative:
        assert operation.lookup is not None
        assert operation.lookup.rests_on
        assert terms.lookup.lag_s == operation.lookup.settle_s
    if not terms.order:
        assert operation.type == "E"


def test_account_in_hold_mode_is_not_live() -> None:
    contract = CONTRACTS["resend"]
    (row,) = replace(account_of(contract), mode="hold").rows()
    terms = terms_of(contract, row)
    assert isinstance(terms, Terms)
    assert not terms.live


def test_what_is_not_configured_has_a_reason_instead_of_terms() -> None:
    catalogue = catalogue_of([account_of(CONTRACTS["resend"])])
    assert isinstance(catalogue.of("resend", "default", "emails.send"), Terms)
    assert catalogue.of("resend", "default", "emails.recall") == NoTerms(Reason.OPERATION_MISSING)
    assert catalogue.of("resend", "other", "emails.send") == NoTerms(Reason.ACCOUNT_MISSING)
    assert Catalogue({}).of("x", "y", "z") == NoTerms(Reason.ACCOUNT_MISSING)


REQUEST = Request("POST", "https://api.example.com/emails", {}, b"{}", "key", "team_1", ())
SENT = replace(
    evidence("no_response", "connection_lost"),
    body_sha256=REQUEST.body_sha256,
    url=REQUEST.target,
    wire_key=REQUEST.wire_key,
    account_identity=REQUEST.account_identity,
)


def test_replay_of_the_same_request_is_one() -> None:
    case = replace(CASE, evidence=(SENT, evidence("lookup", "empty"), evidence("no_response", "claim_expired")))
    assert sends_the_same(case, REQUEST)


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, body=b"{ }"),
        replace(REQUEST, url="https://api.example.com/emails/batch"),
        replace(REQUEST, wire_key="key2"),
        replace(REQUEST, account_identity="team_2"),
    ],
    ids=["bytes", "address", "key", "account"],
)
def test_request_that_differs_from_the_first_attempt_is_no_replay(other: Request) -> None:
    assert not sends_the_same(replace(CASE, evidence=(SENT,)), other)


def test_terms_of_the_tests_are_those_of_a_keyed_contract() -> None:
    """The hand-made terms of the other tests have the shape of the shipped ones."""
    (row,) = account_of(CONTRACTS["resend"]).rows()
    terms = terms_of(CONTRACTS["resend"], row)
    assert isinstance(terms, Terms)
    assert (terms.order, terms.contract_type) == (KEYED.order, KEYED.contract_type)
