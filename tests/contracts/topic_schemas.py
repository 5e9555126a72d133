"""Reads schemas/topics for the tests of the topic contract."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "schemas" / "topics"
BASE = "outbox-relay:/topics/v1/"


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Give every schema of the topic by file name, without `.schema.json`."""
    return {
        path.name.removesuffix(".schema.json"): json.loads(path.read_text()) for path in FOLDER.glob("*.schema.json")
    }


@cache
def validator(name: str) -> jsonschema_rs.Validator:
    """Make the validator of one schema; formats are checked."""
    found = schemas()
    registry = jsonschema_rs.Registry([(schema["$id"], schema) for schema in found.values()])
    return jsonschema_rs.validator_for(found[name], registry=registry, validate_formats=True)


def complaints(name: str, instance: Any) -> list[str]:
    """List what is wrong with `instance` by the schema `name`; empty when it is valid."""
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in validator(name).iter_errors(instance)
    ]


def record_type(ce_type: str) -> str:
    """Take the record type out of a ce_type, insisting on this product and this major version."""
    product, topic, kind, version = ce_type.split(".")
    assert (product, topic, version) == ("outbox-relay", "delivery-status", "v1")
    return kind


def record_complaints(headers: dict[str, str | None], data: Any) -> list[str]:
    """List what is wrong with one record as a consumer sees it, what the schemas say and what they cannot say."""
    kind = record_type(str(headers.get("ce_type")))
    wrong = [*complaints("headers", headers), *complaints(kind, data)]
    unknown = set(data) - set(schemas()["status"]["properties"])
    if unknown:
        wrong.append(f"fields that no schema names: {sorted(unknown)}")
    if headers["ce_subject"] != data["action_id"]:
        wrong.append("ce_subject is not the action id")
    if headers["ce_id"] != f"{data['action_id']}.{headers['ce_sequence']}":
        wrong.append("ce_id is not action id and sequence")
    return wrong
