"""Write one JSON Schema per record type of the status topic, or with --check say what differs.

Which states, events and earlier states a record type can carry follows from schemas/states.toml, so nobody keeps
eighteen files by hand. What every record has in common is written by hand in schemas/topics/status.schema.json. This
program never writes an enumeration that states.schema.json already has.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from outbox_relay.states import (  # noqa: E402
    MEANING,
    RECEIPT_TRANSITIONS,
    TRANSITIONS,
    DeliveryState,
    ExecutionState,
    RecordType,
    State,
)

FOLDER = ROOT / "schemas" / "topics"
NOTE = "Generated from schemas/states.toml by tools/topic_schemas.py. Do not edit."
CREATED = State(ExecutionState.ACTION_CREATED, DeliveryState.DELIVERY_PENDING)
ACCEPTED = (DeliveryState.DELIVERY_CONFIRMED, DeliveryState.RECONCILED_CONFIRMED)
# An attempt must have been counted before these can be said.
AFTER_AN_ATTEMPT = frozenset(
    {
        RecordType.DISPATCH_STARTED,
        RecordType.DELIVERY_CONFIRMED,
        RecordType.DELIVERY_REJECTED,
        RecordType.REPLAY_STARTED,
    }
)
NOTICES = {
    RecordType.REVIEW_OPENED: "A person must look. No state changed: the states are those the action has.",
    RecordType.REPLAY_STARTED: "A replay that the provider's contract makes safe was committed. No state changed.",
    RecordType.CANCEL_REQUESTED: "A cancel was asked for during doubt: only lookups follow. No state changed.",
    RecordType.DUPLICATE_SUSPECTED: "Evidence contradicts a settled state. No state changed; a review is open.",
}
UNKNOWN = State(ExecutionState.DISPATCH_FINISHED, DeliveryState.DELIVERY_UNKNOWN)
# For the example of a notice: a state in which it is said.
NOTICE_EXAMPLES = {
    RecordType.REVIEW_OPENED: UNKNOWN,
    RecordType.REPLAY_STARTED: UNKNOWN,
    RecordType.CANCEL_REQUESTED: UNKNOWN,
    RecordType.DUPLICATE_SUSPECTED: State(ExecutionState.DISPATCH_FINISHED, DeliveryState.RECONCILED_FAILED),
}


@dataclass(slots=True)
class Shape:
    """What one record type can carry. Lists keep the order of the state machine and hold no value twice."""

    meaning: str
    execution: list[str] = field(default_factory=list)
    delivery: list[str] = field(default_factory=list)
    receipt: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    earlier: list[tuple[str | None, str | None]] = field(default_factory=list)


def record_type_of(state: State) -> RecordType:
    """Name the record that announces that an action reached `state`."""
    finished = state.execution is ExecutionState.DISPATCH_FINISHED
    return RecordType(state.delivery if finished else state.execution)


def shapes() -> dict[RecordType, Shape]:
    """Derive what each record type can carry from the state machine."""
    found: dict[RecordType, Shape] = {}

    def reached(target: State, event: str, origin: State | None) -> None:
        kind = record_type_of(target)
        shape = found.setdefault(kind, Shape(MEANING[kind]))
        shape.execution = [target.execution]
        shape.delivery = [target.delivery]
        if event not in shape.events:
            shape.events.append(event)
        pair = (origin.execution, origin.delivery) if origin else (None, None)
        if pair not in shape.earlier:
            shape.earlier.append(pair)

    reached(CREATED, "inserted", None)
    for step in TRANSITIONS:
        reached(step.target, step.event, step.origin)
    for receipt in RECEIPT_TRANSITIONS:
        pairs: list[tuple[str | None, str | None]] = [(ExecutionState.DISPATCH_FINISHED, state) for state in ACCEPTED]
        found[RecordType(receipt.target)] = Shape(
            MEANING[receipt.target],
            [ExecutionState.DISPATCH_FINISHED],
            list(ACCEPTED),
            [receipt.target],
            [receipt.event],
            pairs,
        )
    for kind, meaning in NOTICES.items():
        fixed = NOTICE_EXAMPLES[kind] if kind is RecordType.REPLAY_STARTED else None
        found[kind] = Shape(meaning, events=[kind])
        if fixed:
            found[kind].execution, found[kind].delivery = [fixed.execution], [fixed.delivery]
    return {kind: found[kind] for kind in RecordType}


def allowed(values: list[str] | list[str | None]) -> dict[str, Any]:
    """Say in JSON Schema that a field has one of `values`."""
    distinct = list(dict.fromkeys(values))
    return {"const": distinct[0]} if len(distinct) == 1 else {"enum": distinct}


def properties(kind: RecordType, shape: Shape) -> dict[str, Any]:
    """Narrow the fields of the shared schema to what this record type can carry."""
    narrowed: dict[str, Any] = {"event": allowed(shape.events)}
    for name, values in (
        ("execution_state", shape.execution),
        ("delivery_state", shape.delivery),
        ("receipt_state", shape.receipt),
    ):
        if values:
            narrowed[name] = allowed(values)
    if shape.earlier:
        narrowed["previous_execution_state"] = allowed([pair[0] for pair in shape.earlier])
        narrowed["previous_delivery_state"] = allowed([pair[1] for pair in shape.earlier])
    if kind in AFTER_AN_ATTEMPT:
        narrowed["attempt"] = {"minimum": 1}
    return narrowed


def examples(kind: RecordType, shape: Shape) -> list[dict[str, Any]]:
    """Make one example per event that can lead to this record type."""
    state = NOTICE_EXAMPLES.get(kind)
    execution = shape.execution[0] if shape.execution else str(state.execution if state else "")
    delivery = shape.delivery[0] if shape.delivery else str(state.delivery if state else "")
    made = []
    for event in shape.events:
        origins = [
            (step.origin.execution, step.origin.delivery)
            for step in TRANSITIONS
            if step.event == event and record_type_of(step.target) is kind
        ]
        before: tuple[str | None, str | None] = origins[0] if origins else (execution, delivery)
        if event == "inserted":
            before = (None, None)
        accepted = delivery in ACCEPTED
        made.append(
            {
                "action_id": "019ad5a0-6f0e-7c62-9d0b-3f4f0f6f7a11",
                "provider": "resend",
                "account": "default",
                "operation": "emails.send",
                "event": event,
                "execution_state": execution,
                "delivery_state": delivery,
                "receipt_state": shape.receipt[0] if shape.receipt else "not_expected",
                "previous_execution_state": before[0],
                "previous_delivery_state": before[1],
                "attempt": 0 if before[0] in (None, "action_created") and kind not in AFTER_AN_ATTEMPT else 1,
                "reason": None if event == "inserted" else event,
                "provider_id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794" if accepted else None,
                "resolution": {"accepted": "response", "found": "lookup", "replay_accepted": "replay"}.get(event),
                "key_hash": "9f2c4b7e5d1a08c36e4f9b2d7a5c1e8f0b3d6a9c2e5f8b1d4a7c0e3f6b9d2a5c",
                "occurred_at": "2026-11-30T21:35:12.345678Z",
            }
        )
    return made


def schema(kind: RecordType, shape: Shape) -> dict[str, Any]:
    """Render the schema of one record type."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"outbox-relay:/topics/v1/{kind}.schema.json",
        "$comment": NOTE,
        "title": str(kind),
        "description": shape.meaning,
        "allOf": [{"$ref": "status.schema.json"}],
        "properties": properties(kind, shape),
        "examples": examples(kind, shape),
    }


def rendered() -> dict[Path, str]:
    """Give the text of every derived schema file."""
    return {
        FOLDER / f"{kind}.schema.json": json.dumps(schema(kind, shape), indent=2) + "\n"
        for kind, shape in shapes().items()
    }


def main(arguments: list[str]) -> int:
    """Write the derived files; with --check only compare, and return 1 when one differs."""
    outputs = rendered()
    stale = [path for path, text in outputs.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(
                f"{path.relative_to(ROOT)} is not what schemas/states.toml gives: run `make generate`", file=sys.stderr
            )
        return 1 if stale else 0
    for path in stale:
        path.write_text(outputs[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
