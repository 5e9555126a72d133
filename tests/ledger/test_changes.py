"""An agent follows its own changes, past late commits and many writers: nothing lost, nothing twice, all in order.

The exhaustive case holds a transaction open for 90 s; it runs when `-m exhaustive` asks for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

import psycopg
import pytest

from outbox_relay.errors import InvariantBroken
from tests.ledger.factories import Row, Stage

PAGE = "select cursor, action_id, sequence from outbox.changes(%s, %s)"
EVENTS = "select action_id, sequence from outbox.action_events"
WRITERS = 4
PAUSE_S = 0.05
LIMITS = (1, 7, 2, 50, 3)
DIES_ON_EVERY = 9
WAIT_S = 60.0


def read_in_pages(stage: Stage, limit: int, cursor: str = "") -> list[tuple[UUID, int]]:
    """Everything after the cursor, in the order shown."""
    found: list[Row] = []
    while page := stage.rows("agent", PAGE, cursor, limit):
        found += page
        cursor = page[-1]["cursor"]
    return [(row["action_id"], row["sequence"]) for row in found]


def out_of_order(shown: list[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
    """Changes that came after a later one of the same action."""
    newest: dict[UUID, int] = {}
    return [(action, n) for action, n in shown if n < newest.setdefault(action, n) or newest.update({action: n})]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_the_changes_of_an_action_come_in_order_whoever_began_first(stage: Stage, limit: int) -> None:
    """The relay's transaction is older than the INSERT of what it claims, and one of its actions goes on after it."""
    stage.declare({}, {"account": "second"})
    first = stage.insert()
    with stage.as_("relay").transaction():
        older = stage.claim()
        assert older["ids"] == [first]
        late = [stage.insert(None, account="second") for _ in range(3)]
        token = stage.claim(account="second")["token"]
        for action in late:
            assert stage.report(action, token, "no_effect", retry_in_ms=0) == "applied"
    again = stage.claim(account="second")
    assert stage.report(late[1], again["token"], "accepted", provider_id="p") == "applied"
    shown = read_in_pages(stage, limit)
    stored = {(row["action_id"], row["sequence"]) for row in stage.rows("owner", EVENTS)}
    older_than_before = (
        "select count(*) from outbox.action_events e join outbox.action_events b using (action_id)"
        " where b.sequence < e.sequence and b.transaction_id > e.transaction_id"
    )
    assert stage.one(older_than_before) > 0, "the case that this is about"
    assert (len(shown), set(shown)) == (len(stored), stored)
    assert out_of_order(shown) == []


@dataclass(slots=True)
class Scene:
    """Writers, a relay and a reader at work at the same time."""

    stage: Stage
    pause_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    drained: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    restarts: int = 0

    def guarded(self, work: Callable[[], None]) -> None:
        """Run it, and keep what it raises for the test."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failures.append(error)

    def write(self) -> None:
        """An agent: transactions of two actions; one in five is rolled back."""
        writer = Stage(self.stage.ledger)
        for number in count():
            if self.ended.is_set():
                return
            with writer.as_("agent").transaction(force_rollback=number % 5 == 4):
                writer.insert()
                writer.insert()
            self.ended.wait(self.pause_s)

    def relay(self) -> None:
        """A relay: later changes of the same actions, in transactions that began before some of them."""
        relay = Stage(self.stage.ledger)
        while not self.ended.is_set():
            with relay.as_("relay").transaction():
                claimed = relay.claim(5)
                more = relay.claim(5)
                for batch in (claimed, more):
                    relay.report_all(
                        [{"action_id": a, "claim_token": batch["token"], "event": "refused"} for a in batch["ids"]]
                    )
            self.ended.wait(self.pause_s)

    def read(self) -> None:
        """An agent that keeps what it saw and its cursor in one transaction, and whose connection dies all the time."""
        killer = self.stage.ledger.connect()
        reader = self.connected()
        for number in count(1):
            if self.drained.is_set():
                return
            try:
                with reader.transaction():
                    seen = self.take_page(reader, LIMITS[number % len(LIMITS)])
                    if number % DIES_ON_EVERY == 0:
                        killer.execute("select pg_terminate_backend(%s, 5000)", [reader.info.backend_pid])
            except psycopg.OperationalError:
                self.restarts += 1
                reader = self.connected()
                seen = 1
            if not seen:
                self.drained.wait(PAUSE_S)

    def connected(self) -> psycopg.Connection:
        """A new connection: all that a restarted reader has is what it stored."""
        return self.stage.ledger.connect("agent")

    def take_page(self, reader: psycopg.Connection, limit: int) -> int:
        """Read one page after the stored cursor, and store both."""
        stored = reader.execute("select cursor from reader.place").fetchone()
        if stored is None:
            raise InvariantBroken("the reader's place is gone")
        page = reader.execute(PAGE, [stored[0], limit]).fetchall()
        for _, action, sequence in page:
            reader.execute("insert into reader.seen (action_id, sequence) values (%s, %s)", [action, sequence])
        if page:
            reader.execute("update reader.place set cursor = %s", [page[-1][0]])
        return len(page)

    def seen(self) -> list[tuple[UUID, int]]:
        """What the reader has, in its order."""
        rows = self.stage.rows("owner", "select action_id, sequence from reader.seen order by place")
        return [(row["action_id"], row["sequence"]) for row in rows]


@contextmanager
def at_work(stage: Stage, open_s: int) -> Iterator[Scene]:
    """Everybody works until the block ends, and the reader until it has everything."""
    stage.rows(
        "owner",
        "create schema reader; create table reader.place (cursor text); insert into reader.place values ('');"
        # Whatever is shown twice violates the key, and ends the reader.
        "create table reader.seen (place bigserial, action_id uuid, sequence int, primary key (action_id, sequence));"
        "grant usage on schema reader to outbox_agent; grant all on all tables in schema reader to outbox_agent;"
        "grant all on all sequences in schema reader to outbox_agent",
    )
    scene = Scene(stage, pause_s=max(PAUSE_S, open_s / 500))
    writers = [threading.Thread(target=scene.guarded, args=(work,)) for work in [scene.write] * WRITERS + [scene.relay]]
    reader = threading.Thread(target=scene.guarded, args=(scene.read,))
    try:
        for thread in [*writers, reader]:
            thread.start()
        yield scene
    finally:
        scene.ended.set()
        for thread in writers:
            thread.join(WAIT_S)
        deadline = time.monotonic() + WAIT_S + open_s
        stored = stage.one("select count(*) from outbox.action_events")
        with suppress(TimeoutError):
            until(lambda: bool(scene.failures) or len(scene.seen()) >= stored, deadline)
        scene.drained.set()
        reader.join(WAIT_S)


def until(condition: Callable[[], bool], deadline: float) -> None:
    """Wait for it; TimeoutError when the deadline passes."""
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        pause.wait(PAUSE_S)


@pytest.mark.parametrize(
    "open_s", [2, pytest.param(90, marks=[pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(400)])]
)
def test_a_transaction_that_stays_open_loses_nothing_to_a_reader_that_restarts(stage: Stage, open_s: int) -> None:
    slow = Stage(stage.ledger)
    with at_work(stage, open_s) as scene:
        until(lambda: bool(scene.failures) or len(scene.seen()) > 20, time.monotonic() + WAIT_S)
        with slow.as_("agent").transaction():
            late = slow.insert("late")
            age = "select extract(epoch from clock_timestamp() - transaction_timestamp()) >= %s"
            until(
                lambda: bool(scene.failures) or slow.one(age, open_s, role="agent"), time.monotonic() + open_s + WAIT_S
            )
            held_back = stage.one("select count(*) from outbox.action_events") - len(scene.seen())
            assert held_back > open_s, "others wrote meanwhile, and none of it was shown"
            assert late not in {action for action, _ in scene.seen()}
        until(lambda: bool(scene.failures) or late in {a for a, _ in scene.seen()}, time.monotonic() + WAIT_S)
    assert scene.failures == []
    shown = scene.seen()
    stored = {(row["action_id"], row["sequence"]) for row in stage.rows("owner", EVENTS)}
    print(f"open {open_s} s: {len(shown)} changes, {held_back} held back, {scene.restarts} restarts of the reader")
    assert scene.restarts > 1
    assert (len(shown), set(shown)) == (len(stored), stored)
    assert out_of_order(shown) == []
