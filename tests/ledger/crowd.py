"""Eight sessions that do everything at once to the same few actions, with own, stale and expired claims."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg

from outbox_relay.states import TRANSITIONS
from tests.ledger.factories import PAYLOAD, Stage

FEW = 30
"""The sessions keep to the newest actions, so that they are in each other's way all the time."""

OUTCOMES = ("accepted", "refused", "no_effect", "held", "response_lost", "released")
CONCLUSIONS = ("found", "proven_absent", "replay_accepted", "replay_refused", "late_acceptance")
EXPECTED = frozenset({"OB001", "OB002", "OB009"})
"""Refusals that a race may end in; anything else, a deadlock above all, is a bug."""


@dataclass(slots=True)
class Member:
    """One session's memory: claims it thinks it has."""

    stage: Stage
    dice: random.Random
    known: list[UUID]
    claims: list[tuple[UUID, UUID]] = field(default_factory=list)
    looks: list[tuple[UUID, UUID]] = field(default_factory=list)

    def some(self, items: list[tuple[UUID, UUID]]) -> list[tuple[UUID, UUID]]:
        """A shuffled handful, some of it with a token that is not ours."""
        chosen = self.dice.sample(items[-FEW:], min(len(items[-FEW:]), 8))
        chosen += [(action, uuid4()) for action in self.dice.sample(self.known[-FEW:], min(len(self.known[-FEW:]), 3))]
        return list(dict(chosen).items())

    def insert(self) -> None:
        account = self.dice.choice(["default", "other"])
        order = self.dice.choice([None, "a", "b"])
        self.known.append(self.stage.insert(account=account, ordering_key=order, payload=PAYLOAD))

    def claim(self) -> None:
        claimed = self.stage.claim(6, lease_ms=self.lease_ms(), account=self.dice.choice(["default", "other"]))
        self.claims += [(action, claimed["token"]) for action in claimed["ids"]]

    def lease_ms(self) -> int:
        return self.dice.choice([0, 60_000])

    def report(self) -> None:
        items = [
            {
                "action_id": a,
                "claim_token": t,
                "event": self.dice.choice(OUTCOMES),
                "provider_id": "p",
                "retry_in_ms": 0,
            }
            for a, t in self.some(self.claims)
        ]
        self.stage.report_all(items)

    def look(self) -> None:
        looked = self.stage.look(6, lease_ms=self.lease_ms())
        self.looks += [(action, looked["token"]) for action in looked["ids"]]

    def resolve(self) -> None:
        self.tell(
            "select outbox.record_resolutions(%s)", lambda: {"event": self.dice.choice(CONCLUSIONS), "resend": True}
        )

    def postpone(self) -> None:
        self.tell("select outbox.postpone_unknowns(%s)", lambda: {"delay_ms": 0})

    def ask(self) -> None:
        more = {"missing": "x", "next_step": "y", "due_in_ms": 1, "look_again_in_ms": 0}
        self.tell("select outbox.open_reviews(%s)", lambda: more | {"reason": self.dice.choice("abcde")})

    def tell(self, statement: Any, more: Any) -> None:
        items = [{"action_id": a, "claim_token": t, "reason": "r"} | more() for a, t in self.some(self.looks)]
        self.stage.rows("reconciler", statement, json.dumps(items, default=str))

    def replay(self) -> None:
        for action, token in self.some(self.looks)[:1]:
            self.stage.rows("reconciler", "select * from outbox.begin_replay(%s, %s, 1000, 1000)", action, token)

    def decide(self) -> None:
        open_reviews = self.stage.rows("operator", "select review_id from outbox.list_reviews()")
        if open_reviews:
            decision = self.dice.choice(["confirmed", "failed", "resend", "release", "cancel", "noted"])
            self.stage.decide(self.dice.choice(open_reviews)["review_id"], decision)

    def cancel(self) -> None:
        if self.known:
            self.stage.cancel(self.dice.choice(self.known[-FEW:]))

    def sweep(self) -> None:
        role = self.dice.choice(["relay", "reconciler"])
        self.stage.sweep(role)
        self.stage.one("select outbox.roll_up_counters(5)", role="reconciler")


ACTS = (
    "insert",
    "claim",
    "report",
    "report",
    "look",
    "resolve",
    "postpone",
    "ask",
    "replay",
    "decide",
    "cancel",
    "sweep",
)


@dataclass(slots=True)
class Crowd:
    """All sessions, and what went wrong."""

    stage: Stage
    seed: int
    unexpected: list[str] = field(default_factory=list)
    done: int = 0
    known: list[UUID] = field(default_factory=list)

    def run(self, *, sessions: int, steps: int) -> None:
        """Let them loose, and wait for them."""
        threads = [threading.Thread(target=self._session, args=(number, steps)) for number in range(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _session(self, number: int, steps: int) -> None:
        member = Member(Stage(self.stage.ledger), random.Random(self.seed * 100 + number), self.known)
        for _ in range(steps):
            act = member.dice.choice(ACTS)
            try:
                getattr(member, act)()
            except psycopg.Error as error:
                if error.sqlstate not in EXPECTED:
                    self.unexpected.append(f"seed {self.seed}: {act}: {error.sqlstate} {error}")
            except Exception as error:  # noqa: BLE001 - a thread's failure must reach the test
                self.unexpected.append(f"seed {self.seed}: {act}: {error!r}")
            self.done += 1

    def check_books(self) -> None:
        """Table, queue, history and counters agree about every action."""
        one = self.stage.one
        counters = one("select outbox.action_counters()", role="operator")
        assert sum(item["total"] for item in counters["created"]) == len(self.known)
        assert sum(item["total"] for item in counters["states"]) == len(self.known)
        history = self.stage.rows(
            "owner",
            "select a.action_id, a.event_sequence = count(*) and max(e.sequence) = count(*) as whole"
            " from outbox.outbound_actions a join outbox.action_events e using (action_id) group by 1",
        )
        assert all(row["whole"] for row in history)
        still_open = {tuple(t.origin) for t in TRANSITIONS}
        for row in self.stage.rows(
            "owner",
            "select a.execution_state, a.delivery_state, q.kind from outbox.outbound_actions a"
            " left join outbox.work_queue q using (action_id)",
        ):
            state = (row["execution_state"], row["delivery_state"])
            kinds = {"on_hold": "hold", "dispatch_finished": "unknown"}
            expected = kinds.get(state[0], "dispatch") if state in still_open else None
            assert row["kind"] == expected, state
        unused = (
            "select count(*) from outbox.evidence e where e.proves = 'acceptance' and e.used_at is null and not exists"
        )
        assert (
            one(f"{unused} (select from outbox.work_queue q where q.action_id = e.action_id and q.evidence_waiting)")
            == 0
        )
        steps = self.stage.rows("owner", "select data::jsonb as data from outbox.action_events where sequence > 1")
        told = Counter(
            (d["previous_execution_state"], d["previous_delivery_state"], d["execution_state"], d["delivery_state"])
            for d in (row["data"] for row in steps)
        )
        listed = {(*t.origin, *t.target) for t in TRANSITIONS}
        assert {step for step in told if step[:2] != step[2:]} <= listed
