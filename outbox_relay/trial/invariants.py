"""What must hold after every run (I1 to I10), read from the ledger by its owner and from the providers' own books.

Each check returns what it found broken, in words that name the actions; an empty list is a pass. They judge only what
is stored: no program is asked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg

from outbox_relay.trial.book import Book

Row = dict[str, object]
KEYED = frozenset({"A", "A+", "B", "C"})


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


@dataclass
class Findings:
    """Everything the checks read, read once, after all programs have come to rest."""

    actions: list[Row]
    events: dict[str, list[dict[str, object]]]
    """Per action id, the events' data in order of their sequence."""
    evidence: list[Row]
    reviews: list[Row]
    queue: dict[str, Row]
    created: int
    books: dict[str, Book]
    types: dict[str, str]
    """The contract type of each provider."""


def read_findings(dsn: str, books: Mapping[str, Book], types: Mapping[str, str]) -> Findings:
    """Read the ledger (by the owner's DSN) for the checks."""
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:

        def rows(statement: LiteralString) -> list[Row]:
            return connection.execute(statement).fetchall()

        connection.execute("set transaction isolation level repeatable read")
        events: dict[str, list[dict[str, object]]] = {}
        for row in rows("select action_id::text, data from outbox.action_events order by action_id, sequence"):
            events.setdefault(str(row["action_id"]), []).append(json.loads(str(row["data"])))
        created = rows(
            "select coalesce((select sum(total) from outbox.counters where name = 'created'), 0)"
            " + coalesce((select sum(amount) from outbox.counter_deltas where name = 'created'), 0) as total"
        )
        return Findings(
            actions=rows(
                "select action_id::text as id, provider, idempotency_key, wire_key, provider_id, attempt_count,"
                " execution_state, delivery_state from outbox.outbound_actions order by idempotency_key"
            ),
            events=events,
            evidence=rows("select action_id::text as id, provider_id from outbox.evidence order by evidence_id"),
            reviews=rows("select action_id::text as id, owner, closed_at from outbox.reviews order by review_id"),
            queue={str(row["id"]): row for row in rows("select action_id::text as id, kind from outbox.work_queue")},
            created=int(str(created[0]["total"])),
            books=dict(books),
            types=dict(types),
        )


def at_most_one_effect(found: Findings) -> Iterable[str]:
    """I1: no action happened twice."""
    for provider, book in found.books.items():
        for ref, count in book.duplicates().items():
            yield f"{provider} did {ref} {count} times"


def nothing_uncommitted_was_sent(found: Findings) -> Iterable[str]:
    """I2: every request belongs to a committed action."""
    known = {str(action["wire_key"]) for action in found.actions}
    for provider, book in found.books.items():
        for ref in sorted({line.ref for line in book.requests() if line.ref is not None} - known):
            yield f"{provider} received {ref}, which no action of the ledger has as its key"


def every_acceptance_is_known(found: Findings) -> Iterable[str]:
    """I3: what the provider did is in the ledger: as the provider's id, as evidence, or, without an id, as a state.

    What a person has been asked to find out is not known yet, and not lost.
    """
    ids = {str(row["provider_id"]) for row in (*found.actions, *found.evidence) if row["provider_id"] is not None}
    asked = {str(review["id"]) for review in found.reviews if review["closed_at"] is None}
    confirmed = ("delivery_confirmed", "reconciled_confirmed")
    excused = {
        str(action["wire_key"])
        for action in found.actions
        if str(action["id"]) in asked or (action["delivery_state"] in confirmed and action["provider_id"] is None)
    }
    for provider, book in found.books.items():
        for effect in book.effects():
            if effect.provider_id not in ids and effect.ref not in excused:
                yield f"{provider} accepted {effect.ref} as {effect.provider_id}, and the ledger does not know it"


def attempts_are_alike(found: Findings) -> Iterable[str]:
    """I4: same key, body, URL and account in every attempt of an action."""
    for provider, book in found.books.items():
        for ref, shapes in book.variants().items():
            yield f"{provider} saw {ref} in {len(shapes)} forms"


def nothing_was_sent_blindly(found: Findings) -> Iterable[str]:
    """I5: after an ambiguous end, a send only by a safe replay, after proof of absence, or by a person's decision."""
    for action in found.actions:
        keyed = found.types[str(action["provider"])] in KEYED
        for what in _blind_steps(found.events.get(str(action["id"]), []), keyed=keyed):
            yield f"{action['idempotency_key']} was {what}"


def _blind_steps(events: Iterable[Mapping[str, object]], *, keyed: bool) -> Iterable[str]:
    doubt = False
    for event in events:
        match event["event"]:
            case "response_lost" | "claim_expired":
                doubt = True
            case "proven_absent" | "decided_resend":
                doubt = False
            case "claimed" if doubt:
                yield "dispatched again while it was unknown"
            case "replay_started" if not keyed:
                yield "replayed at a provider without a key"
            case _:
                pass


def nothing_was_sent_unrecorded(found: Findings) -> Iterable[str]:
    """I5 from the outside: the provider received no more requests than the ledger has attempts."""
    attempts = {str(action["wire_key"]): int(str(action["attempt_count"])) for action in found.actions}
    for provider, book in found.books.items():
        for ref, count in Counter(str(line.ref) for line in book.requests()).items():
            if count > attempts.get(ref, 0):
                yield f"{provider} received {ref} {count} times, the ledger knows of {attempts.get(ref, 0)} attempts"


def nothing_is_invisible(found: Findings) -> Iterable[str]:
    """I6: every action is settled, or somebody has it: a queue row with a due time, or a review with an owner."""
    owned = {str(review["id"]) for review in found.reviews if review["closed_at"] is None and review["owner"]}
    for action in found.actions:
        row = found.queue.get(str(action["id"]))
        settled = action["delivery_state"] not in ("delivery_pending", "delivery_unknown")
        if settled == (row is not None):
            yield f"{action['idempotency_key']} is {action['delivery_state']}, its queue row is {row and row['kind']}"
        elif row is not None and row["kind"] == "hold" and str(action["id"]) not in owned:
            yield f"{action['idempotency_key']} is on hold without an owner"


def history_gives_the_state(found: Findings) -> Iterable[str]:
    """I7: the events lead to the row, step by step, and the counters add up."""
    for action in found.actions:
        execution, delivery = None, None
        for event in found.events.get(str(action["id"]), []):
            before = (event["previous_execution_state"], event["previous_delivery_state"])
            if before != (execution, delivery):
                yield f"{action['idempotency_key']} has a gap in its history before {event['event']}"
            execution, delivery = event["execution_state"], event["delivery_state"]
        if (execution, delivery) != (action["execution_state"], action["delivery_state"]):
            yield f"{action['idempotency_key']} is not what its history says"
    if found.created != len(found.actions):
        yield f"the counter says {found.created} created, the ledger has {len(found.actions)}"


CHECKS: Mapping[str, Callable[[Findings], Iterable[str]]] = {
    "I1": at_most_one_effect,
    "I2": nothing_uncommitted_was_sent,
    "I3": every_acceptance_is_known,
    "I4": attempts_are_alike,
    "I5": nothing_was_sent_blindly,
    "I5 outside": nothing_was_sent_unrecorded,
    "I6": nothing_is_invisible,
    "I7": history_gives_the_state,
}


def broken_invariants(found: Findings) -> list[Violation]:
    """Run I1 to I7. I8 (topic), I9 (drains in time) and I10 (branches reached) have arguments of their own."""
    return [Violation(name, what) for name, check in CHECKS.items() for what in check(found)]


def topic_equals_history(found: Findings, records: Sequence[tuple[str, bytes]]) -> list[Violation]:
    """I8: the status topic (event id and value of each record, in order), deduplicated, is the events table.

    Order is compared per action.
    """
    seen: dict[str, str] = {}
    for event_id, value in records:
        if seen.setdefault(event_id, value.decode()) != value.decode():
            return [Violation("I8", f"{event_id} is on the topic with two contents")]
    delivered: dict[str, list[int]] = {}
    for event_id in seen:
        action_id, _, sequence = event_id.rpartition(".")
        delivered.setdefault(action_id, []).append(int(sequence))
    broken = [
        Violation("I8", f"{a} is out of order: {order}") for a, order in delivered.items() if order != sorted(order)
    ]
    for action_id, events in found.events.items():
        if len(delivered.get(action_id, [])) != len(events):
            count = len(delivered.get(action_id, []))
            broken.append(Violation("I8", f"{action_id} has {len(events)} events, the topic {count}"))
    return broken


def missed_branches(reached: Iterable[str], expected: Iterable[str]) -> list[Violation]:
    """I10: a branch that no run reached proves nothing."""
    return [Violation("I10", f"no run reached {name}") for name in sorted(set(expected) - set(reached))]
