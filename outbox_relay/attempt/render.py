"""Turns a claim into the exact request that its contract describes. Pure: no I/O, no clock.

A JSON body is the payload's own text; where the contract must place a key or a mark, only those bytes are touched. A
request that would differ from an earlier attempt's in account, address or contract is refused, never sent.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

import jsonschema_rs

from outbox_relay.attempt import exact_json
from outbox_relay.attempt.exact_json import NotExact, Number, Value
from outbox_relay.attempt.remembered import Remembered
from outbox_relay.attempt.request import CannotRender, Request
from outbox_relay.ledger.records import Claim
from outbox_relay.providers.accounts import Account, pointer_steps
from outbox_relay.providers.contract import Auth, Operation, ProviderContract
from outbox_relay.providers.credentials import Credentials
from outbox_relay.providers.parts import TEMPLATE, Step

_HEADER_UNFIT: Final = re.compile(r"[^\x20-\x7e]")
_ADDRESS: Final = re.compile(r"<([^<>]+)>\s*$")


def render(claim: Claim, contract: ProviderContract, account: Account) -> Request:
    """The request of every attempt of this action. Raises CannotRender, and then nothing may be sent."""
    operation = operation_of(claim, contract, account)
    if claim.contract_version != contract.contract_version:
        message = f"claimed under contract {claim.contract_version}, this program has {contract.contract_version}"
        hint = "run the contract that the action was claimed under, or let a person decide"
        raise CannotRender("contract_changed", message, hint=hint)
    payload = checked_payload(claim, operation)
    _check_key(claim, operation)
    _check_recipients(claim, operation, account, payload)
    fixed = _fixed_of(account, contract, claim.operation)
    headers = dict(fixed.headers)
    body, content_type = _body(claim, contract, operation, account, payload)
    if content_type:
        headers["Content-Type"] = content_type
    headers |= fixed.authorization
    if operation.idempotency.kind == "header" and operation.idempotency.name:
        key = claim.wire_key
        headers[operation.idempotency.name] = f'"{key}"' if operation.idempotency.quoted else key
    return Request(
        method=operation.method,
        url=fixed.url or claim.base_url + fill(operation.path, payload, {}, account.credentials),
        headers=_checked(headers),
        body=body,
        wire_key=claim.wire_key,
        account_identity=claim.account_identity,
        secrets=fixed.secrets,
        has_body=operation.body != "none",
        fresh_connection=Step.REPLAY not in operation.resolution,
    )


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What is the same in every request of an operation under one account. Kept in memory only, as the account is."""

    contract: ProviderContract
    headers: Mapping[str, str] = field(repr=False)
    authorization: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    url: str | None = field(repr=False)
    """The whole address, where the path takes nothing from the payload."""


_FIXED: Final = Remembered[Account, dict[str, _Fixed]](lambda _account: {})


def _fixed_of(account: Account, contract: ProviderContract, name: str) -> _Fixed:
    known = _FIXED.of(account)
    fixed = known.get(name)
    if fixed is None or fixed.contract is not contract:
        operation, auth, credentials = contract.operations[name], contract.auth, account.credentials
        fixed = known[name] = _Fixed(
            contract,
            headers={**contract.headers, **operation.headers},
            authorization=authorization(auth, credentials),
            secrets=secrets_of(auth, credentials),
            url=None if TEMPLATE.search(operation.path) else account.base_url + operation.path,
        )
    return fixed


def operation_of(claim: Claim, contract: ProviderContract, account: Account) -> Operation:
    """The claim's operation, once it is certain that account and address are those that the claim was fixed to."""
    operation = contract.operations.get(claim.operation)
    if operation is None or claim.operation not in account.operations:
        hint = "declare the operation for this account"
        raise CannotRender("operation_missing", f"{claim.provider} has no operation {claim.operation} here", hint=hint)
    if claim.base_url != account.base_url:
        message = f"claimed for {claim.base_url}, the account is at {account.base_url}"
        raise CannotRender("address_changed", message, hint="restore base_url, or let a person decide")
    if claim.account_identity != account.identity:
        message = f"claimed for the identity {claim.account_identity!r}, the account is {account.identity!r}"
        raise CannotRender("account_changed", message, hint="restore the account, or let a person decide")
    return operation


def checked_payload(claim: Claim, operation: Operation) -> dict[str, Value]:
    """The payload, read once, fitting its schema. The error names the place and the rule, never the value."""
    if len(claim.payload.encode("utf-8", errors="replace")) > operation.limits.payload_max_bytes:
        hint = f"keep it within {operation.limits.payload_max_bytes} bytes"
        raise CannotRender("payload_too_large", "the payload is larger than the contract allows", hint=hint)
    try:
        payload = exact_json.read(claim.payload)
    except NotExact as error:
        raise CannotRender("payload_unreadable", f"the payload is {error}") from error
    if not isinstance(payload, dict):
        raise CannotRender("payload_unreadable", "the payload is not a JSON object")
    validator, instance = _VALIDATORS.of(operation), exact_json.plain(payload)
    if not validator.is_valid(instance):
        finding = next(iter(validator.iter_errors(instance)))
        place = "/" + "/".join(str(step) for step in finding.instance_path)
        rule = "/".join(str(step) for step in finding.schema_path)
        hint = f"see payload_schema of {claim.operation} in the contract"
        raise CannotRender("payload_refused", f"the payload breaks {rule} at {place}", hint=hint)
    return payload


def _compiled(operation: Operation) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(operation.payload_schema)


_VALIDATORS: Final = Remembered(_compiled)


def _check_key(claim: Claim, operation: Operation) -> None:
    rules = operation.idempotency
    if len(claim.wire_key) > rules.max_length or not re.fullmatch(rules.pattern, claim.wire_key):
        raise CannotRender("key_unfit", "the wire key does not fit the contract's length or characters")


def _check_recipients(claim: Claim, operation: Operation, account: Account, payload: dict[str, Value]) -> None:
    """The allow-list is a brake: everybody who is reached must match, and who cannot be told is not reached."""
    if account.allow_recipients is None:
        return
    reached = [name for pointer in operation.reaches or operation.recipients for name in _texts(payload, pointer)]
    if not reached and claim.recipient is not None:
        reached = [claim.recipient]
    if not reached or not all(_allowed(name, account.allow_recipients) for name in reached):
        hint = "widen allow_recipients of the account, or cancel the action"
        raise CannotRender("recipient_not_allowed", "a recipient is not on the account's allow-list", hint=hint)


def _allowed(recipient: str, patterns: tuple[str, ...]) -> bool:
    """Compare the bare address, letter case aside; only `*` is special. Several addresses in one text never match."""
    named = _ADDRESS.search(recipient)
    bare = (named.group(1) if named else recipient).strip().lower()
    if re.search(r"[,;\s]", bare) or ("," in recipient and "@" in recipient.split(",", 1)[0]):
        return False
    return any(re.fullmatch(re.escape(pattern.lower()).replace(r"\*", ".*"), bare) for pattern in patterns)


def _texts(payload: dict[str, Value], pointer: str) -> list[str]:
    try:
        found = exact_json.find(payload, pointer_steps(pointer))
    except KeyError:
        return []
    return [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, str)]


def _body(
    claim: Claim, contract: ProviderContract, operation: Operation, account: Account, payload: dict[str, Value]
) -> tuple[bytes, str | None]:
    if operation.body == "none":
        return b"", None
    try:
        text = _placed(claim, contract, operation, account, payload)
        if operation.body == "json":
            return text.encode(), "application/json"
        edited = text is not claim.payload
        return form(exact_json.read(text) if edited else payload).encode(), "application/x-www-form-urlencoded"
    except NotExact as error:
        hint = "leave the member that the contract names to the relay"
        raise CannotRender("place_taken", f"the body cannot be put together: {error}", hint=hint) from error
    except UnicodeEncodeError as error:
        raise CannotRender("payload_unreadable", "the payload holds a lone surrogate") from error


def _placed(
    claim: Claim, contract: ProviderContract, operation: Operation, account: Account, payload: dict[str, Value]
) -> str:
    text = claim.payload
    for pointer in operation.omit:
        text = exact_json.without(text, pointer_steps(pointer)[0])
    for pointer, value in operation.defaults.items():
        if not _stands(payload, pointer):
            text = exact_json.with_member(text, pointer_steps(pointer), value)
    if operation.idempotency.pointer:
        text = exact_json.with_member(text, pointer_steps(operation.idempotency.pointer), claim.wire_key)
    if operation.correlation:
        steps, mark = pointer_steps(operation.correlation.pointer), marker(claim, operation)
        place = exact_json.with_suffix if operation.correlation.place == "append" else exact_json.with_member
        text = place(text, steps, mark)
    if contract.auth.kind == "body" and contract.auth.pointer and contract.auth.credential:
        secret = account.credentials[contract.auth.credential]
        text = exact_json.with_member(text, pointer_steps(contract.auth.pointer), secret)
    return text


def _stands(payload: dict[str, Value], pointer: str) -> bool:
    try:
        exact_json.find(payload, pointer_steps(pointer))
    except KeyError:
        return False
    return True


def marker(claim: Claim, operation: Operation) -> str:
    """Our mark in the request, by which a lookup finds it."""
    template = operation.correlation.template if operation.correlation else "{key}"
    return template.replace("{key}", claim.wire_key)


def form(value: Value, prefix: str = "") -> str:
    """A JSON object as form fields: nested members as a[b]=c, list items as a[0]=c, numbers by their digits."""
    if isinstance(value, dict | list):
        pairs = list(value.items()) if isinstance(value, dict) else [(str(n), item) for n, item in enumerate(value)]
        if prefix and not pairs:
            raise NotExact(f"{prefix} is empty, which a form cannot say")
        return "&".join(form(item, f"{prefix}[{name}]" if prefix else name) for name, item in pairs)
    if value is None:
        raise NotExact(f"{prefix} is null, which a form cannot say")
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = value.text if isinstance(value, Number) else value
    return f"{quote_plus(prefix, safe='[]')}={quote_plus(text)}"


def fill(template: str, payload: dict[str, Value], given: Mapping[str, str], credentials: Credentials) -> str:
    """A path template with every part percent-encoded, so that no value can add a step, a query or a host."""

    def part(found: re.Match[str]) -> str:
        source = found.group(1)
        kind, _, name = source.partition(":")
        if kind == "payload":
            return _segment(exact_json.find(payload, pointer_steps(name)), source)
        return _segment(credentials[name] if kind == "credential" else given[source], source)

    try:
        return TEMPLATE.sub(part, template)
    except KeyError as error:
        raise CannotRender("path_incomplete", f"the path lacks {error.args[0]}") from error


def _segment(value: Value, source: str) -> str:
    text = value.text if isinstance(value, Number) else value
    if not isinstance(text, str) or text in ("", ".", "..") or _HEADER_UNFIT.search(text):
        raise CannotRender("path_unfit", f"{{{source}}} does not fit into a path")
    return quote(text, safe="")


def authorization(auth: Auth, credentials: Credentials) -> dict[str, str]:
    """The header that carries the credential, if one does."""
    match auth.kind:
        case "bearer" if auth.credential:
            return {"Authorization": f"Bearer {credentials[auth.credential]}"}
        case "basic":
            return {"Authorization": f"Basic {_basic(auth, credentials)}"}
        case "header" if auth.credential and auth.header:
            return {auth.header: credentials[auth.credential]}
        case _:
            return {}


def _basic(auth: Auth, credentials: Credentials) -> str:
    user = credentials[auth.username] if auth.username else ""
    password = credentials[auth.credential] if auth.credential else ""
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def secrets_of(auth: Auth, credentials: Credentials) -> tuple[str, ...]:
    """Every form in which a secret travels."""
    encoded = (_basic(auth, credentials),) if auth.kind == "basic" else ()
    return (*credentials.values(), *(quote(value, safe="") for value in credentials.values()), *encoded)


def _checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise CannotRender("header_unfit", f"the header {name} would hold characters that do not belong there")
    return headers
