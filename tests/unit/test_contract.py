"""A contract that claims more than it states is refused when it is loaded, with file, field and fix."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_relay.errors import ContractError
from outbox_relay.providers.registry import load_contracts, parse_contract

GOOD: dict[str, Any] = {
    "name": "sample",
    "version": "1",
    "title": "Sample",
    "checked_on": "2026-11-30",
    "confidence": "documented",
    "type": "A",
    "base_url": "https://api.sample.example",
    "auth": {"kind": "bearer", "credential": "api_key"},
    "sources": [{"title": "its documentation"}],
    "operations": {
        "things.create": {
            "path": "/rooms/{payload:/room}/things",
            "payload_schema": {"type": "object", "required": ["room"]},
            "idempotency": {"kind": "header", "name": "Idempotency-Key", "retention_s": 86400},
            "correlation": {"pointer": "/note", "template": "{key}", "visible_to_recipient": False},
            "acceptance": {"statuses": [201], "id": "body.id"},
            "lookup": {
                "path": "/things",
                "items": "body",
                "read": "note",
                "id": "id",
                "settle_s": 5,
                "consistency": "strong",
                "paging": {"kind": "single"},
                "authoritative": True,
                "rests_on": "the list is the store itself",
            },
            "resolution": ["replay", "lookup", "person"],
        }
    },
}
REMOVED = object()


def changed(*path: str, to: object) -> bytes:
    contract = deepcopy(GOOD)
    place: Any = contract
    for step in path[:-1]:
        place = place[step]
    if to is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return yaml.safe_dump(contract).encode()


OP = ("operations", "things.create")


def test_the_sample_itself_is_good() -> None:
    assert parse_contract(yaml.safe_dump(GOOD).encode(), "sample.yaml").operations["things.create"].type == "A"


@pytest.mark.parametrize(
    ("path", "to", "field", "fix"),
    [
        ((*OP, "idempotency", "retention_s"), REMOVED, "idempotency.retention_s", "write retention_s"),
        ((*OP, "idempotency", "retention_s"), "unpublished", "idempotency.replay_window_s", "write replay_window_s"),
        ((*OP, "idempotency", "retention_s"), "a day", "idempotency.retention_s", "retention_s"),
        ((*OP, "idempotency", "retention_s"), 0, "idempotency.retention_s", "retention_s"),
        ((*OP, "idempotency", "replay_window_s"), 90_000, "idempotency.replay_window_s", "shorten"),
        ((*OP, "idempotency", "name"), REMOVED, "idempotency.name", "write name"),
        ((*OP, "idempotency", "name"), "Key\r\nX: 1", "idempotency.name", "name"),
        ((*OP, "idempotency", "kind"), "body", "idempotency.pointer", "write pointer"),
        ((*OP, "idempotency", "kind"), "none", "idempotency.kind", "remove name"),
        ((*OP, "idempotency", "pattern"), "[", "idempotency.pattern", "correct the expression"),
        ((*OP, "idempotency"), {"kind": "none"}, "resolution", "remove replay"),
        ((*OP, "lookup", "settle_s"), REMOVED, "lookup.settle_s", "write settle_s"),
        ((*OP, "lookup", "paging"), REMOVED, "lookup.paging", "write paging"),
        ((*OP, "lookup", "rests_on"), REMOVED, "lookup.rests_on", "write rests_on"),
        ((*OP, "lookup", "consistency"), REMOVED, "lookup.consistency", "consistency"),
        ((*OP, "lookup", "items"), "body[", "lookup.items", "correct the expression"),
        ((*OP, "lookup", "paging"), {"kind": "cursor"}, "lookup.paging.cursor", "cursor"),
        ((*OP, "lookup", "path"), "/things/{payload:/other}", "path", "add other to payload_schema.required"),
        ((*OP, "lookup", "path"), "/things/{env:HOME}", "lookup.path", "use {payload:/pointer}"),
        ((*OP, "lookup"), REMOVED, "lookup", "declare lookup"),
        ((*OP, "correlation"), REMOVED, "correlation", "declare correlation"),
        ((*OP, "correlation", "template"), "mark", "correlation.template", "put {key}"),
        ((*OP, "correlation", "pointer"), "note", "correlation.pointer", "start it with '/'"),
        ((*OP, "acceptance", "id"), REMOVED, "acceptance.id", "status_decides"),
        ((*OP, "acceptance", "id"), "body.", "acceptance.id", "correct the expression"),
        ((*OP, "acceptance", "statuses"), [20], "acceptance.statuses", "statuses"),
        ((*OP, "resolution"), ["replay", "lookup"], "resolution", "person last"),
        ((*OP, "resolution"), ["replay", "person"], "lookup", "name it in resolution"),
        ((*OP, "resolution"), [], "resolution", "resolution"),
        ((*OP, "payload_schema"), {"type": "array", "required": ["room"]}, "payload_schema", "type: object"),
        ((*OP, "payload_schema"), {"type": "nonsense"}, "payload_schema", "correct the schema"),
        ((*OP, "payload_schema"), {"type": "object"}, "path", "add room to payload_schema.required"),
        ((*OP, "type"), "E", "resolution", "resolution: [person]"),
        ((*OP, "retries"), 3, "retries", "retries"),
        (("auth",), {"kind": "none", "credential": "x"}, "auth.credential", "kind: none"),
        (("auth",), {"kind": "header", "credential": "x"}, "auth.header", "header: NAME"),
        (("base_url",), "ftp://x", "base_url", "https://"),
        (("base_url",), "https://user:pw@x", "base_url", "https://"),
        (("confidence",), "memory", "stability", "stability: preview"),
        (("sources",), [], "sources", "sources"),
        (("checked_on",), "lately", "checked_on", "checked_on"),
        (("name",), "Sample Provider", "name", "name"),
        (("operations",), {}, "operations", "operations"),
    ],
)
def test_a_contract_that_claims_more_than_it_states_is_refused(path: Any, to: Any, field: Any, fix: Any) -> None:
    with pytest.raises(ContractError) as refusal:
        parse_contract(changed(*path, to=to), "sample.yaml")
    assert "sample.yaml: " in str(refusal.value)
    assert field in str(refusal.value)
    assert fix in (refusal.value.hint or "")


def test_type_d_needs_a_lookup_and_type_e_needs_a_person_only() -> None:
    content = changed(*OP, "type", to="D")
    assert parse_contract(content, "sample.yaml").operations["things.create"].type == "D"
    operation = deepcopy(GOOD["operations"]["things.create"]) | {"type": "D", "resolution": ["person"]}
    del operation["lookup"], operation["correlation"]
    with pytest.raises(ContractError, match="type D claims a lookup"):
        parse_contract(changed(*OP, to=operation), "sample.yaml")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x00", "not readable as YAML"),
        (b"- a", "not a mapping"),
        (b"", "not a mapping"),
        (b"a: [", "not readable as YAML"),
        (b"a: !!python/object/apply:os.system [ls]", "not readable as YAML"),
        (b"x" * 300_000, "larger than"),
        (b"digest: abc\nname: x", "digest"),
    ],
)
def test_a_file_that_is_no_contract_is_named(content: Any, what: Any) -> None:
    with pytest.raises(ContractError, match=what) as refusal:
        parse_contract(content, "sample.yaml")
    assert str(refusal.value).startswith("sample.yaml: ")
    assert refusal.value.hint


def test_a_window_is_the_published_retention_less_a_margin_and_can_only_be_shortened() -> None:
    def window(**rules: Any) -> float | None:
        given = {"kind": "header", "name": "K", "margin_s": 100} | rules
        return (
            parse_contract(changed(*OP, "idempotency", to=given), "s").operations["things.create"].idempotency.window_s
        )

    assert window(retention_s=86400) == 86300
    assert window(retention_s=86400, replay_window_s=3600) == 3500
    assert window(retention_s="unpublished", replay_window_s=900) == 800


def test_a_window_of_nothing_forbids_the_replay() -> None:
    rules = GOOD["operations"]["things.create"]["idempotency"] | {"replay_window_s": 0}
    with pytest.raises(ContractError, match="a second send"):
        parse_contract(changed(*OP, "idempotency", to=rules), "sample.yaml")


def test_the_version_tells_apart_every_edit_of_the_file() -> None:
    content = yaml.safe_dump(GOOD).encode()
    one, other = parse_contract(content, "s"), parse_contract(content + b"# \n", "s")
    assert one.contract_version == f"1+{hashlib.sha256(content).hexdigest()[:12]}"
    assert one.contract_version != other.contract_version


def test_a_mounted_file_replaces_the_shipped_one_and_adds_others(tmp_path: Path) -> None:
    (tmp_path / "sample.yaml").write_bytes(yaml.safe_dump(GOOD).encode())
    shipped = (resources.files("outbox_relay.providers") / "contracts" / "resend.yaml").read_bytes()
    (tmp_path / "resend.yaml").write_bytes(shipped + b"# ours\n")
    (tmp_path / "README.md").write_text("not a contract")
    own, plain = load_contracts(tmp_path), load_contracts()
    assert set(own) == set(plain) | {"sample"}
    assert own["resend"].contract_version != plain["resend"].contract_version
    assert own["github"].contract_version == plain["github"].contract_version


def test_two_files_for_one_provider_are_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_bytes(yaml.safe_dump(GOOD).encode())
    with pytest.raises(ContractError, match="also declared in"):
        load_contracts(tmp_path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="not a directory"):
        load_contracts(tmp_path / "missing")


def test_a_contract_cannot_be_changed_after_it_was_loaded() -> None:
    contract = load_contracts()["resend"]
    with pytest.raises(ValueError, match="frozen"):
        contract.version = "2"  # type: ignore[misc]
