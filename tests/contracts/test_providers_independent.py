"""Contracts against servers written by somebody else, through the same attempt engine that production uses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from outbox_relay.attempt.attempt import attempt, look_up
from outbox_relay.attempt.classify import Classification, Finding
from outbox_relay.attempt.classify_lookup import LookupAnswer, LookupFinding
from outbox_relay.attempt.send import Sender, open_http_client
from outbox_relay.ledger.records import Claim
from outbox_relay.providers.accounts import Account
from outbox_relay.providers.credentials import Credentials
from tests.unit.attempts import CONTRACTS, PAYLOADS, account_of, claim_of, long_lease

MAX_PAGES = 20


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    async with open_http_client() as client:
        yield Sender(client)


def of_account(provider: str, base_url: str) -> Account:
    names = CONTRACTS[provider].credentials
    token = "sk_test_123" if provider == "stripe" else "test_token_admin"
    return account_of(CONTRACTS[provider], base_url=base_url, credentials=Credentials(dict.fromkeys(names, token)))


def fresh(account: Account, operation: str, **payload: Any) -> Claim:
    key = f"test:{uuid4()}"
    return claim_of(
        account, operation, PAYLOADS[account.provider, operation] | payload, wire_key=key, idempotency_key=key
    )


async def send(claim: Claim, account: Account, sender: Sender) -> Classification:
    return await attempt(claim, account.contract, account, sender, long_lease(), deadline_s=10)


async def search(claim: Claim, account: Account, sender: Sender) -> LookupAnswer:
    """Read every page, as the reconciler does."""
    page: str | None = None
    for _ in range(MAX_PAGES):
        said = await look_up(claim, account.contract, account, sender, long_lease(), deadline_s=10, page=page)
        if said.finding is not LookupFinding.MORE:
            return said
        page = said.next_page
    raise AssertionError("more pages than the test allows")


# ---- Resend ----------------------------------------------------------------------------------------------------------


async def test_resend_gives_the_same_id_for_a_replay(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("resend", emulate["resend"])
    claim = fresh(account, "emails.send", subject="größer 🚀")
    first, again = await send(claim, account, sender), await send(replace(claim, attempt=2), account, sender)
    assert (first.finding, again.finding) == (Finding.ACCEPTED, Finding.ACCEPTED)
    assert first.provider_id
    assert first.provider_id == again.provider_id


async def test_resend_tells_a_key_with_another_body_apart(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("resend", emulate["resend"])
    claim = fresh(account, "emails.send")
    await send(claim, account, sender)
    other = replace(claim, payload=json.dumps(PAYLOADS["resend", "emails.send"] | {"subject": "another"}))
    said = await send(other, account, sender)
    assert (said.finding, said.evidence.proves) == (Finding.MISMATCH, "arrival")


# ---- GitHub ----------------------------------------------------------------------------------------------------------


async def open_first_issue(account: Account, sender: Sender) -> None:
    """Make sure that issue number 1 exists, to comment on."""
    claim = fresh(account, "issues.create", owner="admin", repo="shop")
    assert (await send(claim, account, sender)).finding is Finding.ACCEPTED


async def test_github_shows_an_issue_by_its_hidden_mark(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("github", emulate["github"])
    claim = fresh(account, "issues.create", owner="admin", repo="shop", body="größer 🚀")
    assert (await search(claim, account, sender)).finding is LookupFinding.ABSENT
    sent = await send(claim, account, sender)
    found = await search(claim, account, sender)
    assert (sent.finding, found.finding) == (Finding.ACCEPTED, LookupFinding.FOUND)
    assert found.provider_ids == (sent.provider_id,)


async def test_github_shows_a_comment_by_its_hidden_mark(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("github", emulate["github"])
    await open_first_issue(account, sender)
    claim = fresh(account, "issue_comments.create", owner="admin", repo="shop", issue_number=1)
    assert (await search(claim, account, sender)).finding is LookupFinding.ABSENT
    sent = await send(claim, account, sender)
    found = await search(claim, account, sender)
    assert (sent.finding, found.provider_ids) == (Finding.ACCEPTED, (sent.provider_id,))


async def test_github_is_read_over_every_page(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("github", emulate["github"])
    await open_first_issue(account, sender)
    wanted = fresh(account, "issue_comments.create", owner="admin", repo="shop", issue_number=1)
    await send(wanted, account, sender)
    for _ in range(60):
        await send(fresh(account, "issue_comments.create", owner="admin", repo="shop", issue_number=1), account, sender)
    last = fresh(account, "issue_comments.create", owner="admin", repo="shop", issue_number=1)
    await send(last, account, sender)
    for claim in (wanted, last):
        assert (await search(claim, account, sender)).finding is LookupFinding.FOUND


async def test_github_refuses_what_is_not_there(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("github", emulate["github"])
    claim = fresh(account, "issues.create", owner="admin", repo="missing")
    assert (await send(claim, account, sender)).finding is Finding.REFUSED


# ---- Slack -----------------------------------------------------------------------------------------------------------


async def test_slack_shows_a_message_by_its_metadata(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("slack", emulate["slack"])
    claim = fresh(account, "chat.post_message", channel="C000000001", text="größer 🚀")
    assert (await search(claim, account, sender)).finding is LookupFinding.ABSENT
    sent = await send(claim, account, sender)
    found = await search(claim, account, sender)
    assert (sent.finding, found.finding) == (Finding.ACCEPTED, LookupFinding.FOUND)
    assert found.provider_ids == (sent.provider_id,)


async def test_slack_refuses_with_a_200(emulate: dict[str, str], sender: Sender) -> None:
    account = of_account("slack", emulate["slack"])
    said = await send(fresh(account, "chat.post_message", channel="C999999999"), account, sender)
    assert (said.finding, said.evidence.status) == (Finding.REFUSED, 200)


# ---- Stripe ----------------------------------------------------------------------------------------------------------


async def test_stripe_takes_the_form_that_the_payload_becomes(stripe_mock: str, sender: Sender) -> None:
    account = of_account("stripe", stripe_mock)
    claim = fresh(
        account,
        "payment_intents.create",
        amount=123_456_789,
        metadata={"note": "größer & mehr"},
        payment_method_types=["card"],
        payment_method_options={"card": {"capture_method": "manual"}},
    )
    said = await send(claim, account, sender)
    assert said.finding is Finding.ACCEPTED, said.evidence.excerpt
    assert (said.provider_id or "").startswith("pi_")


async def test_stripe_takes_a_refund(stripe_mock: str, sender: Sender) -> None:
    account = of_account("stripe", stripe_mock)
    said = await send(fresh(account, "refunds.create"), account, sender)
    assert said.finding is Finding.ACCEPTED, said.evidence.excerpt
    assert (said.provider_id or "").startswith("re_")


async def test_stripe_refuses_a_parameter_that_does_not_exist(stripe_mock: str, sender: Sender) -> None:
    account = of_account("stripe", stripe_mock)
    said = await send(fresh(account, "refunds.create", colour="red"), account, sender)
    assert said.finding is Finding.REFUSED


@pytest.mark.parametrize("operation", ["payment_intents.create", "refunds.create"])
async def test_stripe_answers_the_lookup(stripe_mock: str, sender: Sender, operation: str) -> None:
    """Stateless: it knows the question and gives a page of other objects."""
    account = of_account("stripe", stripe_mock)
    said = await look_up(fresh(account, operation), account.contract, account, sender, long_lease(), deadline_s=10)
    assert said.finding in (LookupFinding.ABSENT, LookupFinding.MORE), said.evidence.excerpt
