"""What both programs' writer promises, with a store whose answers the test gives one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from prometheus_client import CollectorRegistry, Counter

from outbox_relay.errors import LedgerUnavailable, OutboxError
from outbox_relay.ledger.records import ActionId, Recorded
from outbox_relay.program.writer import BatchWriter
from outbox_relay.telemetry import Health, Readiness, get_logger

PATIENCE_S = 45


@dataclass(frozen=True)
class Note:
    action: int
    text: str = "plain"


@dataclass
class Call:
    """One write, which lasts until the test answers it."""

    part: Sequence[Note]
    answer: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def ends(self, error: Exception | None = None) -> None:
        if error is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(error)


class NoteWriter(BatchWriter[Note]):
    def __init__(self, *, batch_max: int = 100) -> None:
        self.health = Health()
        failures = Counter("failures", "Writes that failed.", registry=CollectorRegistry())
        super().__init__(
            "note",
            failures=failures,
            health=self.health,
            log=get_logger("test"),
            batch_max=batch_max,
            linger_s=0,
        )
        self.calls: list[Call] = []
        self.kept: list[Note] = []
        self.lost: list[Note] = []
        self.repeated: list[bool] = []

    async def store(self, part: Sequence[Note]) -> list[Recorded]:
        call = Call(part)
        self.calls.append(call)
        await call.answer
        self.kept.extend(part)
        return []

    def action_of(self, item: Note) -> ActionId:
        return ActionId(UUID(int=item.action))

    def plainer(self, item: Note) -> Note:
        return Note(item.action)

    def given_up(self, item: Note, error: Exception) -> None:
        del error
        self.lost.append(item)

    def stored(self, batch: Sequence[Note], recorded: Sequence[Recorded], *, repeated: bool) -> None:
        del batch, recorded
        self.repeated.append(repeated)

    async def call(self, number: int) -> Call:
        """The write of this number, once it is made."""
        await until(lambda: len(self.calls) > number)
        return self.calls[number]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


async def turns() -> None:
    """Let everything happen that can happen without another answer."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def writing(writer: NoteWriter) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(writer.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put(writer: NoteWriter, *notes: Note) -> None:
    for note in notes:
        writer.put(note)


async def test_what_arrives_during_a_write_is_the_next_batch() -> None:
    writer = NoteWriter()
    async with writing(writer):
        put(writer, Note(1))
        first = await writer.call(0)
        put(writer, Note(2), Note(3))
        await turns()
        assert len(writer.calls) == 1
        first.ends()
        assert (await writer.call(1)).part == [Note(2), Note(3)]


async def test_a_batch_is_no_larger_than_its_cap_and_one_is_written_at_a_time() -> None:
    writer = NoteWriter(batch_max=2)
    async with writing(writer):
        put(writer, *map(Note, range(3)))
        first = await writer.call(0)
        await turns()
        assert [call.part for call in writer.calls] == [[Note(0), Note(1)]]
        assert writer.pending == 3
        first.ends()
        assert (await writer.call(1)).part == [Note(2)]
        assert writer.pending == 1


async def test_items_keep_their_order_and_two_of_one_action_are_in_no_batch() -> None:
    writer = NoteWriter()
    async with writing(writer):
        put(writer, Note(1, "first"), Note(2), Note(1, "second"), Note(3), Note(1, "third"))
        for number in range(3):
            (await writer.call(number)).ends()
        await until(lambda: writer.pending == 0)
    assert [call.part for call in writer.calls] == [
        [Note(1, "first"), Note(2)],
        [Note(1, "second"), Note(3)],
        [Note(1, "third")],
    ]


async def test_a_failed_write_is_repeated_and_stops_claims_until_it_is_stored() -> None:
    writer = NoteWriter(batch_max=1)
    async with writing(writer):
        put(writer, Note(1), Note(2))
        (await writer.call(0)).ends(LedgerUnavailable("away"))
        again = await writer.call(1)
        assert again.part == [Note(1)]
        assert writer.pending == 2
        assert not writer.storing
        assert writer.health.readiness_of("notes") is Readiness.NOT_READY
        again.ends()
        (await writer.call(2)).ends()
        await until(lambda: writer.pending == 0 and writer.storing)
        assert writer.health.readiness_of("notes") is Readiness.READY
        assert writer.repeated == [True, False]


async def test_an_item_that_the_ledger_refuses_costs_no_other_one() -> None:
    writer = NoteWriter()
    async with writing(writer):
        put(writer, Note(1, "rich"), Note(2, "rich"), Note(3, "rich"))
        (await writer.call(0)).ends(OutboxError("invalid byte sequence"))
        (await writer.call(1)).ends()
        for number in (2, 3):
            (await writer.call(number)).ends(OutboxError("invalid byte sequence"))
        (await writer.call(4)).ends(OutboxError("invalid byte sequence"))
        (await writer.call(5)).ends()
        await until(lambda: writer.pending == 0)
    assert [call.part for call in writer.calls[1:]] == [
        [Note(1, "rich")],
        [Note(2, "rich")],
        [Note(2)],
        [Note(3, "rich")],
        [Note(3)],
    ]
    assert writer.kept == [Note(1, "rich"), Note(3)]
    assert writer.lost == [Note(2, "rich")]
    assert writer.storing


async def test_after_close_it_ends_when_everything_is_stored_and_not_before() -> None:
    writer = NoteWriter()
    async with writing(writer) as task:
        put(writer, Note(1, "first"))
        first = await writer.call(0)
        put(writer, Note(1, "second"))
        writer.close()
        first.ends(LedgerUnavailable("away"))
        (await writer.call(1)).ends()
        second = await writer.call(2)
        await turns()
        assert not task.done()
        second.ends()
        async with asyncio.timeout(PATIENCE_S):
            await task
    assert writer.kept == [Note(1, "first"), Note(1, "second")]
    assert writer.pending == 0


async def test_closed_and_empty_it_ends_at_once() -> None:
    writer = NoteWriter()
    async with writing(writer) as task:
        await turns()
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            await task
