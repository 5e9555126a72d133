"""One attempt: render, get a connection, check the lease a last time, send once, classify.

Used by the relay and by the reconciler's replays alike. Decides nothing beyond what the attempt itself proved, opens no
database transaction, and never sends twice.
"""

from __future__ import annotations

import time

from outbox_relay.attempt.classify import Classification, Finding, classify, not_sent
from outbox_relay.attempt.classify_lookup import LookupAnswer, classify_lookup
from outbox_relay.attempt.lease import Lease
from outbox_relay.attempt.render import render
from outbox_relay.attempt.render_lookup import render_lookup
from outbox_relay.attempt.request import CannotRender, Request
from outbox_relay.attempt.send import Sender
from outbox_relay.ledger.records import Claim
from outbox_relay.providers.accounts import Account
from outbox_relay.providers.adapters import Signable
from outbox_relay.providers.contract import ProviderContract


async def attempt(
    claim: Claim,
    contract: ProviderContract,
    account: Account,
    sender: Sender,
    lease: Lease,
    *,
    deadline_s: float,
    brief: bool = False,
) -> Classification:
    """Send the claim's action once, at most, and say what that proved. Raises nothing that the network causes.

    `brief`: see `classify`.
    """
    try:
        request = render(claim, contract, account)
        if account.mode != "live" or claim.mode != "live":
            return _not_live(claim, account, request)
        request = _signed(request, account)
    except CannotRender as reason:
        return not_sent(Finding.HELD, reason.reason, attempt=claim.attempt, message=str(reason))
    sent = await sender.send(request, deadline_s=deadline_s, may_send=lambda: lease.covers(deadline_s))
    return classify(sent, contract.operations[claim.operation], request, attempt=claim.attempt, brief=brief)


async def look_up(
    claim: Claim,
    contract: ProviderContract,
    account: Account,
    sender: Sender,
    lease: Lease,
    *,
    deadline_s: float,
    page: str | None = None,
) -> LookupAnswer:
    """Ask for one page. Raises CannotRender when the question cannot be asked under this contract and account."""
    request = render_lookup(claim, contract, account, page)
    sent = await sender.send(request, deadline_s=deadline_s, may_send=lambda: lease.covers(deadline_s))
    return classify_lookup(sent, claim, contract.operations[claim.operation], request)


def _not_live(claim: Claim, account: Account, request: Request) -> Classification:
    """Hold and shadow render and validate everything, and send nothing."""
    mode = "hold" if "hold" in (account.mode, claim.mode) else "shadow"
    message = f"the account {claim.provider}/{claim.account} is in mode {mode}: rendered and checked, not sent"
    return not_sent(Finding.HELD, f"account_in_{mode}", request, attempt=claim.attempt, message=message)


def _signed(request: Request, account: Account) -> Request:
    """Let the account's adapter sign this attempt; method, URL, key and body stay as they are."""
    if account.adapter is None:
        return request
    signable = Signable(
        method=request.method,
        url=request.url,
        headers=request.headers,
        body=request.body,
        key=request.wire_key,
        credentials=account.credentials,
        # The receiver compares this with its own clock. It decides nothing here, so the machine's clock will do.
        at_unix_s=int(time.clock_gettime(time.CLOCK_REALTIME)),
    )
    try:
        return request.with_headers(account.adapter.sign(signable))
    except (ValueError, RuntimeError, LookupError) as error:
        hint = "correct the signing credential of the account"
        raise CannotRender(
            "cannot_sign", "the attempt cannot be signed with the account's credentials", hint=hint
        ) from error
