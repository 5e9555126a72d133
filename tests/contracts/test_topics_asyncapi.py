"""The AsyncAPI document says what the topic is, and the reference parser agrees that it is one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.capture.topic import Topics
from outbox_relay.settings import Settings
from outbox_relay.states import RecordType
from tests.contracts.topic_schemas import FOLDER, ROOT, schemas

pytestmark = pytest.mark.timeout(300)  # the first run installs the parser
TOOL = ROOT / "tools" / "asyncapi"
# Severity 0 is an error, 1 a warning. The only other complaint allowed is that a newer AsyncAPI exists.
WORST_ALLOWED = 2


@pytest.fixture(scope="module")
def parsed(node: Path, node_packages: Callable[[Path], Path]) -> dict[str, Any]:
    command = [str(node), str(TOOL / "check.mjs"), str(node_packages(TOOL)), str(FOLDER / "asyncapi.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_document_is_valid_asyncapi_3(parsed: dict[str, Any]) -> None:
    assert parsed["valid"]
    assert [complaint for complaint in parsed["complaints"] if complaint["severity"] < WORST_ALLOWED] == []


def test_a_wrong_document_is_refused(node: Path, node_packages: Callable[[Path], Path], tmp_path: Path) -> None:
    text = (FOLDER / "asyncapi.yaml").read_text().replace("    action: send\n", "    action: shout\n")
    for path in FOLDER.glob("*.schema.json"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "asyncapi.yaml").write_text(text)
    command = [str(node), str(TOOL / "check.mjs"), str(node_packages(TOOL)), str(tmp_path / "asyncapi.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not json.loads(done.stdout)["valid"]


def test_topic_is_named_partitioned_and_kept_as_documented(parsed: dict[str, Any]) -> None:
    (channel,) = parsed["channels"]
    assert channel["address"] == "{prefix}.delivery-status.v1"
    assert channel["kafka"]["partitions"] == 12
    assert channel["kafka"]["topicConfiguration"] == {
        "cleanup.policy": ["delete"],
        "retention.ms": 14 * 24 * 3600 * 1000,
    }


def test_every_record_type_is_a_message_keyed_by_the_action_with_cloudevents_headers(parsed: dict[str, Any]) -> None:
    (channel,) = parsed["channels"]
    messages = {message["name"]: message for message in channel["messages"]}
    assert set(messages) == {f"outbox-relay.delivery-status.{kind}.v1" for kind in RecordType}
    for kind in RecordType:
        message = messages[f"outbox-relay.delivery-status.{kind}.v1"]
        assert message["key"]["format"] == "uuid"
        assert set(message["headers"]) == set(schemas()["headers"]["properties"])
        assert message["payload"]["$id"] == schemas()[kind]["$id"]


def test_the_products_defaults_are_those_of_the_document(parsed: dict[str, Any]) -> None:
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    (channel,) = parsed["channels"]
    assert defaults["topic_partitions"] == channel["kafka"]["partitions"]
    assert defaults["topic_retention_days"] * 86_400_000 == channel["kafka"]["topicConfiguration"]["retention.ms"]
    assert channel["address"] == Topics(prefix="{prefix}", connector="any").status
