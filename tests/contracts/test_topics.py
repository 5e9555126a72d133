"""The contract of the delivery-status topic: schemas, examples, and what may change without a new version."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event

from outbox_relay.states import RecordType
from tests.contracts.topic_schemas import BASE, ROOT, complaints, record_complaints, schemas
from tools import topic_schemas

KINDS = [str(kind) for kind in RecordType]
EXAMPLES = [(kind, example) for kind in KINDS for example in schemas()[kind]["examples"]]
FORBIDDEN = {"payload", "recipient", "tenant", "idempotency_key", "content_version", "wire_key"}
PUBLISHED = sorted((Path(__file__).parent / "published").glob("*.json"))


def example_id(pair: tuple[str, dict[str, Any]]) -> str:
    return f"{pair[0]}-{pair[1]['event']}"


def headers_for(kind: str, data: dict[str, Any]) -> dict[str, str | None]:
    return {
        "ce_id": f"{data['action_id']}.3",
        "ce_type": f"outbox-relay.delivery-status.{kind}.v1",
        "ce_source": "/outbox-relay/3b0c2f3e-8a55-4a55-9e53-0a4c2f1d7e90",
        "ce_specversion": "1.0",
        "ce_time": data["occurred_at"],
        "ce_subject": data["action_id"],
        "ce_sequence": "3",
        "content-type": "application/json",
        "traceparent": None,
    }


def test_every_record_type_has_a_schema_and_no_schema_is_left_over() -> None:
    assert set(schemas()) == {*KINDS, "status", "states", "headers"}


def test_schemas_are_what_the_state_machine_gives() -> None:
    stale = [path.name for path, text in topic_schemas.rendered().items() if path.read_text() != text]
    assert not stale, "run: python tools/topic_schemas.py"


@pytest.mark.parametrize("name", sorted(schemas()))
def test_schema_is_valid_json_schema_2020_12_with_its_own_id(name: str) -> None:
    schema = schemas()[name]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"{BASE}{name}.schema.json"
    jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize(("kind", "example"), EXAMPLES, ids=map(example_id, EXAMPLES))
def test_every_example_is_a_valid_record(kind: str, example: dict[str, Any]) -> None:
    assert record_complaints(headers_for(kind, example), example) == []


@pytest.mark.parametrize("example", schemas()["headers"]["examples"], ids=lambda example: str(example["ce_sequence"]))
def test_header_examples_are_valid_and_parse_as_cloudevents(example: dict[str, str | None]) -> None:
    assert complaints("headers", example) == []
    headers = {name: value.encode() for name, value in example.items() if value is not None}
    event = from_binary_event(KafkaMessage(headers, str(example["ce_subject"]), b"{}"))
    assert event.get_type() == example["ce_type"]
    assert event.get_extension("sequence") == example["ce_sequence"]


def test_a_record_that_lies_about_its_state_is_invalid() -> None:
    data = copy.deepcopy(schemas()["delivery_confirmed"]["examples"][0])
    data["delivery_state"] = "delivery_unknown"
    assert complaints("delivery_confirmed", data)
    assert complaints("delivery_unknown", data), "an acceptance is not an event that leads to unknown"


@pytest.mark.parametrize("missing", schemas()["status"]["required"])
def test_a_record_without_a_promised_field_is_invalid(missing: str) -> None:
    data = copy.deepcopy(schemas()["action_created"]["examples"][0])
    del data[missing]
    assert complaints("action_created", data)


def test_every_field_is_always_present_so_that_null_has_one_meaning() -> None:
    assert set(schemas()["status"]["required"]) == set(schemas()["status"]["properties"])


def test_no_field_can_carry_a_payload_a_recipient_a_tenant_or_a_key() -> None:
    assert not FORBIDDEN & set(schemas()["status"]["properties"])


@pytest.mark.parametrize("name", sorted(schemas()))
def test_schemas_stay_open_so_that_a_field_can_be_added_within_v1(name: str) -> None:
    closed = {"additionalProperties", "unevaluatedProperties", "maxProperties", "propertyNames"}
    assert not closed & set(schemas()[name])


@pytest.mark.parametrize(("kind", "example"), EXAMPLES, ids=map(example_id, EXAMPLES))
def test_a_record_with_an_added_field_is_still_valid(kind: str, example: dict[str, Any]) -> None:
    assert complaints(kind, example | {"field_of_a_later_release": {"nested": [1]}}) == []


# A reader as a consumer may have written it when v1 was first published. It is frozen: change it never, it stands for
# programs that nobody here can change.
def frozen_reader(headers: dict[str, str | None], value: bytes) -> tuple[str, int, str, str, bool]:
    kind = str(headers["ce_type"]).split(".")[2]
    data = json.loads(value)
    settled = kind in {
        "delivery_confirmed",
        "delivery_rejected",
        "reconciled_confirmed",
        "reconciled_failed",
        "abandoned",
        "cancelled",
        "expired",
    }
    return (
        data["action_id"],
        int(str(headers["ce_sequence"])),
        data["execution_state"],
        data["delivery_state"],
        settled,
    )


@pytest.mark.parametrize(("kind", "example"), EXAMPLES, ids=map(example_id, EXAMPLES))
def test_a_reader_of_the_first_v1_reads_the_newest_examples(kind: str, example: dict[str, Any]) -> None:
    value = json.dumps(example | {"added_later": None}).encode()
    headers = headers_for(kind, example) | {"ce_addedlater": None}
    action_id, sequence, execution, delivery, settled = frozen_reader(headers, value)
    assert (action_id, sequence) == (example["action_id"], 3)
    assert (execution, delivery) == (example["execution_state"], example["delivery_state"])
    notices = {"delivered", "undelivered", "review_opened", "replay_started", "cancel_requested", "duplicate_suspected"}
    if kind not in notices:
        assert settled == (delivery not in {"delivery_pending", "delivery_unknown"})


@pytest.mark.parametrize("release", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_example_of_v1_is_valid_by_todays_schemas(release: Path) -> None:
    published = json.loads(release.read_text())
    assert published
    for kind, examples in published.items():
        for example in examples:
            assert complaints(kind, example) == [], f"{kind} as published in {release.stem}"


def test_the_first_release_of_v1_is_among_the_published() -> None:
    assert "v1.0" in [path.stem for path in PUBLISHED]


def test_the_page_for_consumers_names_every_record_type_and_header() -> None:
    page = (ROOT / "docs" / "status-topic.md").read_text()
    assert [name for name in [*KINDS, *schemas()["headers"]["properties"]] if f"`{name}`" not in page] == []
