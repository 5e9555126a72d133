"""Turns a claim into the question whether its action exists. Pure: no I/O, no clock.

A next page is only ever asked for at the address that the account declares: a link to another host is refused, so that
credentials stay where they belong.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit

from outbox_relay.attempt import exact_json
from outbox_relay.attempt.exact_json import NotExact, Number, Value
from outbox_relay.attempt.render import authorization, fill, marker, operation_of, secrets_of
from outbox_relay.attempt.request import CannotRender, Request
from outbox_relay.ledger.records import Claim
from outbox_relay.providers.accounts import Account, pointer_steps
from outbox_relay.providers.contract import ProviderContract
from outbox_relay.providers.exchange import MAX_PAGE_BYTES
from outbox_relay.providers.parts import TEMPLATE, Lookup


def render_lookup(claim: Claim, contract: ProviderContract, account: Account, page: str | None = None) -> Request:
    """The request for one page; `page` is the `next_page` of the page before, None for the first.

    Raises CannotRender. The contract may have changed since the attempt: a question needs no equal bytes.
    """
    operation = operation_of(claim, contract, account)
    lookup = operation.lookup
    if lookup is None:
        raise CannotRender("lookup_missing", f"{claim.provider} declares no lookup for {claim.operation}")
    try:
        payload = exact_json.read(claim.payload)
    except NotExact as error:
        raise CannotRender("payload_unreadable", f"the payload is {error}") from error
    if not isinstance(payload, dict):
        raise CannotRender("payload_unreadable", "the payload is not a JSON object")
    headers = {**contract.headers, **operation.headers, **authorization(contract.auth, account.credentials)}
    body = b""
    by_link = lookup.paging is not None and lookup.paging.kind == "link_header"
    if page is not None and by_link:
        url = _same_place(page, account.base_url)
    else:
        given = _given(claim, marker(claim, operation), lookup, page)
        path = fill(lookup.path, payload, given, account.credentials)
        url, fields = account.base_url + path, _fields(lookup, payload, given)
        if lookup.method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = fields.encode()
        else:
            url += f"?{fields}" if fields else ""
    return Request(
        method=lookup.method,
        url=url,
        headers=headers,
        body=body,
        wire_key=claim.wire_key,
        account_identity=claim.account_identity,
        secrets=secrets_of(contract.auth, account.credentials),
        has_body=lookup.method == "POST",
        max_answer_bytes=MAX_PAGE_BYTES,
    )


def _given(claim: Claim, mark: str, lookup: Lookup, page: str | None) -> dict[str, str]:
    since = _since(claim.first_attempt_at or claim.created_at, lookup.since_margin_s)
    return {
        "key": claim.wire_key,
        "marker": mark,
        "since:iso": since.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "since:unix": str(int(since.timestamp())),
        "cursor": page or "",
    }


def _since(first_attempt_at: datetime, margin_s: float) -> datetime:
    return first_attempt_at.astimezone(UTC) - timedelta(seconds=margin_s)


def _fields(lookup: Lookup, payload: dict[str, Value], given: dict[str, str]) -> str:
    """Fields of the query (or form) in declared order; an empty one, as a first page's cursor is, is left out."""

    def part(found: re.Match[str]) -> str:
        text = given.get(found.group(1))
        return _text(payload, found.group(1)) if text is None else text

    values = {name: TEMPLATE.sub(part, template) for name, template in lookup.query.items()}
    fields = [f"{quote(name, safe='[]')}={quote(value, safe='')}" for name, value in values.items() if value]
    return "&".join(fields)


def _text(payload: dict[str, Value], source: str) -> str:
    """A payload's text or number for a query; empty when the payload lacks it. Credentials have no place in a query."""
    kind, _, pointer = source.partition(":")
    if kind != "payload":
        raise CannotRender("query_unfit", f"{{{source}}} has no place in a query")
    try:
        value = exact_json.find(payload, pointer_steps(pointer))
    except KeyError:
        return ""
    if isinstance(value, Number):
        return value.text
    return value if isinstance(value, str) else ""


def _same_place(url: str, base_url: str) -> str:
    wanted, given = urlsplit(base_url), urlsplit(url)
    same = (wanted.scheme, wanted.netloc) == (given.scheme, given.netloc)
    if not same or not given.path.startswith(wanted.path) or not url.isascii():
        raise CannotRender("page_elsewhere", "the next page lies at another address than the account's")
    return given._replace(fragment="").geturl()
