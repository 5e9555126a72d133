"""The oracle can fail: each invariant is broken on purpose and found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outbox_relay.trial.book import Book, BookWriter
from outbox_relay.trial.invariants import (
    Findings,
    broken_invariants,
    missed_branches,
    topic_equals_history,
)

ID = "00000000-0000-0000-0000-000000000001"


def action(**changed: Any) -> dict[str, Any]:
    settled = {"execution_state": "dispatch_finished", "delivery_state": "delivery_confirmed"}
    facts = {"provider": "p", "idempotency_key": "k", "wire_key": "k", "provider_id": "p_1", "attempt_count": 1}
    return {"id": ID, **facts, **settled, **changed}


def event(name: str, before: tuple[str | None, str | None], after: tuple[str, str]) -> dict[str, object]:
    states = dict(zip(("previous_execution_state", "previous_delivery_state"), before, strict=True))
    return {"event": name, **states, "execution_state": after[0], "delivery_state": after[1]}


CREATED = ("action_created", "delivery_pending")
STARTED = ("dispatch_started", "delivery_pending")
CONFIRMED = ("dispatch_finished", "delivery_confirmed")
UNKNOWN = ("dispatch_finished", "delivery_unknown")
HISTORY = [
    event("inserted", (None, None), CREATED),
    event("claimed", CREATED, STARTED),
    event("accepted", STARTED, CONFIRMED),
]


class Books:
    """A book that is written by hand."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "p.book"
        self.writer = BookWriter(self.path)
        self.made = 0

    def request(self, ref: str = "k", *, body: bytes = b"{}", account: str = "a") -> int:
        return self.writer.request(
            kind="operation",
            operation="o",
            method="POST",
            url="/o",
            ref=ref,
            wire_key=ref,
            account=account,
            body=body,
            complete=True,
            fault=None,
        )

    def effect(self, request: int, ref: str = "k") -> None:
        self.made += 1
        self.writer.effect(
            operation="o", ref=ref, provider_id=f"p_{self.made}", request=request, body=b"{}", account="a"
        )


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def findings(books: Books, **changed: Any) -> Findings:
    read: dict[str, Any] = {"actions": [action()], "events": {ID: HISTORY}, "evidence": [], "reviews": [], "queue": {}}
    read |= {"created": 1, "books": {"p": Book(books.path)}, "types": {"p": "D"}}
    return Findings(**(read | changed))


def names(found: Findings) -> set[str]:
    return {violation.invariant for violation in broken_invariants(found)}


def test_a_clean_run_breaks_nothing(books: Books) -> None:
    books.effect(books.request())
    assert names(findings(books)) == set()


def test_i1_two_effects_are_found(books: Books) -> None:
    books.effect(books.request())
    books.effect(books.request())
    evidence = [{"provider_id": "p_2"}]
    assert names(findings(books, actions=[action(attempt_count=2)], evidence=evidence)) == {"I1"}


def test_i2_a_request_of_a_rolled_back_action_is_found(books: Books) -> None:
    books.effect(books.request())
    books.request("rolled-back")
    assert names(findings(books)) == {"I2", "I5 outside"}


def test_i3_an_acceptance_that_the_ledger_does_not_know_is_found(books: Books) -> None:
    books.effect(books.request())
    lost = action(provider_id=None, delivery_state="reconciled_failed")
    history = [*HISTORY[:2], event("x", STARTED, ("dispatch_finished", "reconciled_failed"))]
    assert names(findings(books, actions=[lost], events={ID: history})) == {"I3"}


@pytest.mark.parametrize("other", [{"body": b"[]"}, {"account": "b"}])
def test_i4_attempts_that_differ_are_found(books: Books, other: dict[str, Any]) -> None:
    books.effect(books.request())
    books.request(**other)
    assert names(findings(books, actions=[action(attempt_count=2)])) == {"I4"}


@pytest.mark.parametrize("lost", ["response_lost", "claim_expired"])
def test_i5_a_blind_second_send_is_found(books: Books, lost: str) -> None:
    books.effect(books.request())
    books.request()
    again = ("retry_scheduled", "delivery_pending")
    between = [event(lost, STARTED, UNKNOWN), event("no_effect", UNKNOWN, again), event("claimed", again, STARTED)]
    history = [*HISTORY[:2], *between, HISTORY[2]]
    assert names(findings(books, actions=[action(attempt_count=2)], events={ID: history})) == {"I5"}
    history[3] = event("proven_absent", UNKNOWN, again)
    assert names(findings(books, actions=[action(attempt_count=2)], events={ID: history})) == set()


@pytest.mark.parametrize(("kind", "broken"), [("D", {"I5"}), ("A", set())])
def test_i5_a_replay_without_a_key_is_found(books: Books, kind: str, broken: set[str]) -> None:
    books.effect(books.request())
    books.request()
    confirmed = ("dispatch_finished", "reconciled_confirmed")
    after = [
        event("response_lost", STARTED, UNKNOWN),
        event("replay_started", UNKNOWN, UNKNOWN),
        event("replay_accepted", UNKNOWN, confirmed),
    ]
    found = findings(
        books,
        actions=[action(attempt_count=2, delivery_state="reconciled_confirmed")],
        events={ID: [*HISTORY[:2], *after]},
        types={"p": kind},
    )
    assert names(found) == broken


def test_i5_a_send_that_the_ledger_does_not_know_is_found(books: Books) -> None:
    books.effect(books.request())
    books.request()
    assert names(findings(books)) == {"I5 outside"}


def test_i6_an_unknown_that_nobody_has_is_found(books: Books) -> None:
    unknown = action(delivery_state="delivery_unknown", provider_id=None)
    history = [*HISTORY[:2], event("response_lost", STARTED, UNKNOWN)]
    assert names(findings(books, actions=[unknown], events={ID: history})) == {"I6"}
    assert names(findings(books, actions=[unknown], events={ID: history}, queue={ID: {"kind": "unknown"}})) == set()


def test_i6_a_hold_without_an_owner_is_found(books: Books) -> None:
    held = action(execution_state="on_hold", delivery_state="delivery_pending", provider_id=None)
    history = [*HISTORY[:1], event("held", CREATED, ("on_hold", "delivery_pending"))]
    queue = {ID: {"kind": "hold"}}
    assert names(findings(books, actions=[held], events={ID: history}, queue=queue)) == {"I6"}
    reviews = [{"id": ID, "closed_at": None, "owner": "oncall"}]
    assert names(findings(books, actions=[held], events={ID: history}, queue=queue, reviews=reviews)) == set()


@pytest.mark.parametrize("history", [HISTORY[:2], [HISTORY[0], HISTORY[2]]])
def test_i7_a_history_that_does_not_give_the_state_is_found(books: Books, history: list[dict[str, object]]) -> None:
    books.effect(books.request())
    assert names(findings(books, events={ID: history})) == {"I7"}


def test_i7_a_counter_that_is_off_is_found(books: Books) -> None:
    books.effect(books.request())
    assert names(findings(books, created=2)) == {"I7"}


def test_i8_the_topic_is_compared_without_its_repeats(books: Books) -> None:
    found = findings(books)
    records = [(f"{ID}.{number}", str(number).encode()) for number in (1, 2, 3)]
    assert topic_equals_history(found, [*records, records[0]]) == []
    assert topic_equals_history(found, records[:2])
    assert topic_equals_history(found, [records[1], records[0], records[2]])
    assert topic_equals_history(found, [*records, (f"{ID}.1", b"other")])


def test_i10_a_branch_that_was_never_reached_is_named() -> None:
    assert [each.what for each in missed_branches({"lookup"}, {"lookup", "replay"})] == ["no run reached replay"]
