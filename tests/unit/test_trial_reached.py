"""I10: every branch of the decision, every answer and every finding is reached by a drill, or shown by a test."""

from __future__ import annotations

import json
from pathlib import Path

from outbox_relay.attempt.classify import Finding
from outbox_relay.states import Event
from outbox_relay.trial.__main__ import DRILLS
from outbox_relay.trial.reached import EXPECTED, NOT_DRILLED, branches_in, missed_by
from reconciler.decide import FIXABLE, TELLING
from reconciler.terms import Reason

ROOT = Path(__file__).resolve().parents[2]
FROM_RENDERING = Reason.REQUEST_CHANGED
"""Found while the request is rendered, after the decision."""
REVIEWS = (FIXABLE | set(TELLING) | {Reason.NOTHING_TO_ASK, Reason.UNRESOLVED_TOO_LONG}) - {FROM_RENDERING}
WAITS = (Reason.IN_FLIGHT, Reason.SETTLING, Reason.NOTHING_TO_RESOLVE)
EVERY = (
    {f"decision: review {reason}" for reason in REVIEWS}
    | {f"decision: wait {reason}" for reason in WAITS}
    | {f"decision: use {event}" for event in (Event.LATE_ACCEPTANCE, Event.RECEIPT_ARRIVED)}
    | {"decision: look", "decision: look, empty is proof", "decision: replay"}
    | {f"{who} attempt: {finding}" for who in ("relay", "reconciler") for finding in Finding}
    | {f"answer: {answer}" for answer in ("found", "absent", "inconclusive")}
)


def test_every_branch_has_a_drill_or_a_test() -> None:
    drilled = set().union(*EXPECTED.values())
    assert drilled | set(NOT_DRILLED) == EVERY
    assert not drilled & set(NOT_DRILLED)
    assert set(EXPECTED) <= set(DRILLS)


def test_the_tests_that_stand_in_for_a_drill_exist() -> None:
    for test in NOT_DRILLED.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), test


def test_branches_are_read_from_what_the_programs_logged(tmp_path: Path) -> None:
    lines = [
        {"program": "reconciler", "event": "decided", "decision": "wait settling"},
        {"program": "relay", "event": "attempt", "finding": "unknown"},
        {"program": "reconciler", "event": "lookup", "answer": "absent"},
        {"program": "relay", "event": "ready"},
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "relay.log").write_text(f'{text}{{"program": "relay", "event": "attempt", "fin')
    assert branches_in(tmp_path) == {"decision: wait settling", "relay attempt: unknown", "answer: absent"}
    assert missed_by("lookup-trouble", branches_in(tmp_path)) == ["answer: inconclusive"]
