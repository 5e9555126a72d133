"""One suite over every shipped contract: renders, keeps its limits, understands its own answers, survives garbage."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.attempt.classify import Finding, classify
from outbox_relay.attempt.render import render
from outbox_relay.attempt.render_lookup import render_lookup
from outbox_relay.attempt.request import CannotRender, Request
from outbox_relay.providers.contract import Operation
from outbox_relay.providers.exchange import Phase, Transmission
from outbox_relay.providers.parts import AnswerRule, ContractType, Step
from tests.unit.attempts import CONTRACTS, PAYLOADS, account_of, answered, claim_of, lost

EVERY = [(provider, name) for provider, contract in CONTRACTS.items() for name in contract.operations]
OPERATIONS = pytest.mark.parametrize(("provider", "name"), EVERY, ids=[f"{a}:{b}" for a, b in EVERY])
ACCEPTANCES: dict[str, tuple[int, dict[str, Any]]] = {
    "resend": (200, {"id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794"}),
    "github": (201, {"id": 1, "node_id": "x", "number": 3}),
    "stripe": (200, {"id": "re_1Nispe2eZvKYlo2Cd31jOCgZ", "object": "refund"}),
    "slack": (200, {"ok": True, "channel": "C1", "ts": "1503435956.000247"}),
    "pagerduty": (202, {"status": "success", "message": "Event processed", "dedup_key": "k"}),
    "standard-webhooks": (204, {}),
}
REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "resend": (422, {"name": "validation_error"}),
    "github": (422, {"message": "Validation Failed"}),
    "stripe": (400, {"error": {"type": "invalid_request_error"}}),
    "slack": (200, {"ok": False, "error": "channel_not_found"}),
    "pagerduty": (400, {"status": "invalid event"}),
    "standard-webhooks": (410, {}),
}


def operation_of(provider: str, name: str) -> Operation:
    return CONTRACTS[provider].operations[name]


def rendered(provider: str, name: str, **changed: Any) -> Request:
    account = account_of(CONTRACTS[provider])
    return render(claim_of(account, name, **changed), CONTRACTS[provider], account)


def finding(provider: str, name: str, transmission: Transmission) -> Finding:
    return classify(transmission, operation_of(provider, name), rendered(provider, name)).finding


def test_every_operation_has_a_sample_payload() -> None:
    assert set(EVERY) == set(PAYLOADS)


@OPERATIONS
def test_it_renders_and_the_key_is_on_the_wire_where_it_says(provider: str, name: str) -> None:
    request = rendered(provider, name)
    rules = operation_of(provider, name).idempotency
    if rules.kind == "header":
        assert request.headers[rules.name or ""] == request.wire_key
    elif rules.kind != "none":
        assert json.dumps(request.wire_key).encode() in request.body
    assert re.match(r"https://[a-z.]+(/|$)", request.url)
    assert "{" not in request.url


@OPERATIONS
def test_it_refuses_what_its_schema_does_not_allow(provider: str, name: str) -> None:
    for member in operation_of(provider, name).payload_schema.get("required", []):  # type: ignore[union-attr]
        payload = {key: value for key, value in PAYLOADS[provider, name].items() if key != member}
        with pytest.raises(CannotRender) as refusal:
            rendered(provider, name, payload=payload or {"other": 1})
        assert refusal.value.reason == "payload_refused"


@OPERATIONS
def test_it_keeps_its_limits(provider: str, name: str) -> None:
    operation = operation_of(provider, name)
    longest = "k" * operation.idempotency.max_length
    assert rendered(provider, name, wire_key=longest).wire_key == longest
    with pytest.raises(CannotRender):
        rendered(provider, name, wire_key=longest + "k")
    padding = {"padding": "x" * operation.limits.payload_max_bytes}
    with pytest.raises(CannotRender) as refusal:
        rendered(provider, name, payload=PAYLOADS[provider, name] | padding)
    assert refusal.value.reason == "payload_too_large"


@OPERATIONS
def test_it_understands_its_acceptance_and_its_refusal(provider: str, name: str) -> None:
    assert finding(provider, name, answered(*ACCEPTANCES[provider])) is Finding.ACCEPTED
    assert finding(provider, name, answered(*REFUSALS[provider])) is Finding.REFUSED


@OPERATIONS
@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 520])
def test_a_server_error_or_a_timeout_leaves_the_outcome_unknown(provider: str, name: str, status: int) -> None:
    for body in (
        b"",
        b"<html>",
        b'{"error": {"message": "x"}}',
        *(json.dumps(a[1]).encode() for a in ACCEPTANCES.values()),
    ):
        assert finding(provider, name, answered(status, body)) is Finding.UNKNOWN


@OPERATIONS
def test_throttling_is_no_effect_and_a_refused_credential_is_held(provider: str, name: str) -> None:
    assert finding(provider, name, answered(429, b"", retry_after="1")) is Finding.NO_EFFECT
    assert finding(provider, name, answered(401, b"{}")) is Finding.HELD


@OPERATIONS
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\x00\xff", b"<html>", b'"text"', b"[" * 50_000])
def test_garbage_on_a_2xx_is_unknown_unless_the_status_decides(provider: str, name: str, body: bytes) -> None:
    operation = operation_of(provider, name)
    for status in operation.acceptance.statuses:
        wanted = Finding.ACCEPTED if operation.acceptance.status_decides else Finding.UNKNOWN
        assert finding(provider, name, answered(status, body)) is wanted


@OPERATIONS
def test_trouble_on_the_wire_is_judged_by_the_phase_alone(provider: str, name: str) -> None:
    assert finding(provider, name, lost(Phase.NOT_SENT, "connect_refused")) is Finding.NO_EFFECT
    assert finding(provider, name, lost(Phase.SENT, "connect_refused")) is Finding.UNKNOWN
    assert finding(provider, name, answered(*ACCEPTANCES[provider], complete=False)) is Finding.UNKNOWN


@OPERATIONS
def test_no_status_means_two_things_without_a_condition(provider: str, name: str) -> None:
    """A later rule for the same status, without a condition of its own before it, could never speak."""
    operation = operation_of(provider, name)
    rules: list[AnswerRule] = [*operation.idempotency.mismatch, *operation.idempotency.in_progress]
    rules += [*operation.throttling, *operation.holds, *operation.refusals]
    taken: set[int] = set()
    for rule in rules:
        assert not taken & set(rule.statuses), rule
        if rule.when is None:
            taken |= set(rule.statuses)
    assert not taken & set(operation.acceptance.statuses)


@OPERATIONS
def test_a_lookup_is_a_question_with_a_complete_address(provider: str, name: str) -> None:
    operation, contract = operation_of(provider, name), CONTRACTS[provider]
    account = account_of(contract)
    if operation.lookup is None:
        assert Step.LOOKUP not in operation.resolution
        return
    request = render_lookup(claim_of(account, name), contract, account)
    assert request.url.startswith(account.base_url + "/")
    assert "{" not in request.url
    assert request.has_body == (request.method == "POST")


@OPERATIONS
def test_the_order_of_resolution_fits_the_type(provider: str, name: str) -> None:
    operation = operation_of(provider, name)
    replays = Step.REPLAY in operation.resolution
    assert replays == (operation.type in (ContractType.A, ContractType.B, ContractType.C))
    if operation.type is ContractType.D:
        assert operation.resolution[0] is Step.LOOKUP


@pytest.mark.parametrize("provider", sorted(CONTRACTS))
def test_every_contract_is_dated_and_sourced(provider: str) -> None:
    contract = CONTRACTS[provider]
    assert contract.checked_on <= date(2026, 11, 30)
    assert contract.sources
    assert contract.confidence == "documented"


def test_the_page_about_providers_names_every_operation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "providers.md").read_text()
    for provider, name in EVERY:
        row = next((line for line in page.splitlines() if f"`{provider}`" in line and f"`{name}`" in line), None)
        assert row, f"{provider} {name} is missing"
        assert f"| {operation_of(provider, name).type} |" in row
