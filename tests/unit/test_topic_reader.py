"""What the example consumer makes of single records, good and bad. No Kafka, no database."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from examples.status_consumer.consumer import Settings, Unusable, read
from outbox_relay.states import RecordType
from tests.contracts.topic_schemas import schemas

ACTION = "019ad5a0-6f0e-7c62-9d0b-3f4f0f6f7a11"


@dataclass
class Record:
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    topic: str = "outbox.delivery-status.v1"
    partition: int = 3
    offset: int = 41


def record(kind: str = "delivery_confirmed", /, *, drop: str = "", **changed: Any) -> Record:
    data = {**schemas()["delivery_confirmed"]["examples"][0], **changed}
    data.pop(drop, None)
    headers = {
        "ce_id": f"{ACTION}.3".encode(),
        "ce_type": f"outbox-relay.delivery-status.{kind}.v1".encode(),
        "ce_sequence": b"3",
        "traceparent": None,
    }
    headers.pop(drop, None)
    return Record(json.dumps(data).encode(), list(headers.items()))


@pytest.mark.parametrize("kind", list(RecordType))
def test_every_published_example_can_be_read(kind: RecordType) -> None:
    for example in schemas()[kind]["examples"]:
        change = read(record(kind, **example))
        assert (change.kind, change.action_id, change.sequence) == (kind, example["action_id"], 3)
        assert change.delivery_state == example["delivery_state"]


def test_unknown_types_fields_and_states_of_a_later_release_pass() -> None:
    change = read(record("type_of_a_later_release", added={"x": [1]}, delivery_state="state_of_a_later_release"))
    assert (change.kind, change.delivery_state) == ("type_of_a_later_release", "state_of_a_later_release")


@pytest.mark.parametrize("drop", ["ce_id", "ce_type", "ce_sequence", "action_id", "delivery_state", "occurred_at"])
def test_a_record_without_a_promised_part_is_unusable(drop: str) -> None:
    with pytest.raises(Unusable):
        read(record(drop=drop))


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000])
def test_a_value_that_is_no_json_object_is_unusable(value: bytes | None) -> None:
    bad = record()
    bad.value = value
    with pytest.raises(Unusable):
        read(bad)


@pytest.mark.parametrize("kind", ["com.example.other", "outbox-relay.delivery-status.accepted.v2"])
def test_a_record_of_another_contract_is_unusable(kind: str) -> None:
    other = record()
    other.headers = [(name, kind.encode() if name == "ce_type" else value) for name, value in other.headers]
    with pytest.raises(Unusable, match="v1"):
        read(other)


def test_the_reason_never_repeats_the_content() -> None:
    bad = record()
    bad.value = b"secret-content{"
    with pytest.raises(Unusable) as caught:
        read(bad)
    assert "secret" not in str(caught.value)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(SystemExit, match="CONSUMER_BOOTSTRAP_SERVERS"):
        Settings.from_environment({"CONSUMER_DATABASE_URL": "postgresql:///x"})
