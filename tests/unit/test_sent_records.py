"""How values go to the ledger: as records of what they hold, never with a text that its batch would be refused for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from outbox_relay.ledger.records import ActionId, ClaimToken, Demand, Evidence, Outcome
from outbox_relay.ledger.session import as_json
from outbox_relay.states import Event


def sent(*values: object) -> list[dict[str, Any]]:
    parameter = as_json(values)
    assert parameter.dumps is not None
    text = parameter.dumps(parameter.obj)
    found: list[dict[str, Any]] = json.loads(text)
    return found


def outcome(**given: Any) -> Outcome:
    fixed = {"action_id": ActionId(UUID(int=1)), "claim_token": ClaimToken(UUID(int=2)), "event": Event.REFUSED}
    return Outcome(**{**fixed, "reason": "http_400", **given})


def test_what_is_none_is_left_out_and_ids_are_text() -> None:
    assert sent(outcome()) == [
        {
            "action_id": "00000000-0000-0000-0000-000000000001",
            "claim_token": "00000000-0000-0000-0000-000000000002",
            "event": "refused",
            "reason": "http_400",
        }
    ]


def test_a_duration_becomes_whole_milliseconds_under_its_name_there() -> None:
    assert sent(outcome(retry_in_s=1.5))[0]["retry_in_ms"] == 1500
    assert sent({"wait_s": -1.0, "name": "x"}) == [{"wait_ms": 0, "name": "x"}]
    assert sent(Demand("resend", "default", 3)) == [{"provider": "resend", "account": "default", "slots": 3}]


def test_a_record_inside_keeps_its_own_names() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    evidence = Evidence("response", "refusal", "http_400", headers={"a": "b"}, recorded_at=at)
    assert sent(outcome(evidence=evidence))[0]["evidence"] == {
        "kind": "response",
        "proves": "refusal",
        "reason": "http_400",
        "headers": {"a": "b"},
        "recorded_at": at.isoformat(),
    }


@pytest.mark.parametrize("poison", ["\0", *map(chr, (0xD800, 0xDFFF))])
def test_poison_is_replaced_wherever_it_stands_and_its_neighbours_stay(poison: str) -> None:
    evidence = Evidence("response", "refusal", "http_400", headers={f"x{poison}": f"y{poison}"}, excerpt=f"z{poison}")
    first, second = sent(
        outcome(message=f"a{poison}b", evidence=evidence), outcome(message="\u00e9 \U0001f600 \\u0000")
    )
    assert first["message"] == "a\ufffdb"
    assert first["evidence"]["headers"] == {"x\ufffd": "y\ufffd"}
    assert first["evidence"]["excerpt"] == "z\ufffd"
    assert second["message"] == "\u00e9 \U0001f600 \\u0000"


@pytest.mark.parametrize("stray", [object(), {1, 2}, b"bytes"])
def test_what_does_not_belong_into_the_ledger_is_refused(stray: object) -> None:
    with pytest.raises(TypeError):
        sent({"member": stray})
