"""What the ledger writes into its event table is what the schemas of the topic say."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from outbox_relay.states import RecordType
from tests.contracts.ledger_lives import lead_every_life
from tests.contracts.topic_schemas import record_complaints, record_type
from tests.flow.resend_account import declare_resend

COLUMNS = (
    ("event_id", "ce_id"),
    ("type", "ce_type"),
    ("source", "ce_source"),
    ("specversion", "ce_specversion"),
    ("time", "ce_time"),
    ("subject", "ce_subject"),
    ("sequence", "ce_sequence"),
    ("content_type", "content-type"),
    ("traceparent", "traceparent"),
)
Record = tuple[dict[str, str | None], dict[str, Any]]


@pytest.fixture
def records(ledger: Any) -> list[Record]:
    """Every record that the lives of all kinds leave, as the connector would place columns, in order per action."""
    with ledger.connect("owner") as owner:
        declare_resend(owner, receipts_expected=True)
        lead_every_life(owner)
        names = ", ".join(f"{column}::text" for column, _ in COLUMNS)
        rows = owner.execute(f"select {names}, data from outbox.action_events order by action_id, sequence").fetchall()
    headers = [header for _, header in COLUMNS]
    return [(dict(zip(headers, row, strict=False)), json.loads(row[-1])) for row in rows]


def test_every_record_of_a_real_ledger_is_valid_by_its_schema(records: list[Record]) -> None:
    wrong = {
        f"{headers['ce_type']} {data['event']}": found
        for headers, data in records
        if (found := record_complaints(headers, data))
    }
    assert wrong == {}


def test_the_lives_leave_every_record_type(records: list[Record]) -> None:
    assert {record_type(str(headers["ce_type"])) for headers, _ in records} == set(RecordType)


def test_records_of_one_action_are_numbered_without_a_gap_and_each_names_the_state_before(
    records: list[Record],
) -> None:
    by_action: dict[str, list[Record]] = {}
    for headers, data in records:
        by_action.setdefault(data["action_id"], []).append((headers, data))
    for life in by_action.values():
        assert [headers["ce_sequence"] for headers, _ in life] == [str(number) for number in range(1, len(life) + 1)]
        assert life[0][1]["event"] == "inserted"
        for (_, before), (_, after) in pairwise(life):
            assert after["previous_execution_state"] == before["execution_state"]
            assert after["previous_delivery_state"] == before["delivery_state"]


def test_nothing_planted_in_an_action_reaches_a_record(records: list[Record]) -> None:
    everything = json.dumps(records)
    for planted in ("planted", "lost-found", "shop@example.com", "accepted-delivered-bounced"):
        assert planted not in everything


def test_records_of_one_key_share_a_hash_and_no_two_actions_do(records: list[Record]) -> None:
    hashes: dict[str, set[str]] = {}
    for _, data in records:
        hashes.setdefault(data["action_id"], set()).add(data["key_hash"])
    assert all(len(found) == 1 for found in hashes.values())
    assert len({next(iter(found)) for found in hashes.values()}) == len(hashes)
