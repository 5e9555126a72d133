"""Wake-ups from the status topic: only what was asked for, only what is young, and again after the broker was away."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import kafka as kafka_python
import pytest

from outbox_relay.capture.records import Use, Wakeup
from outbox_relay.capture.topic import Topics, ensure_topics
from outbox_relay.capture.wakeups import Wakeups
from outbox_relay.errors import ConditionNotMet, SettingsError
from outbox_relay.local.stack import Stack
from tests.plugins.kafka import KafkaServer

WANTED = frozenset({"action_created", "retry_scheduled"})


class Listener:
    """A program that wakes up, for one topic of its own."""

    def __init__(self, bootstrap: str, *, group: str = "", max_age_s: float = 60) -> None:
        self.bootstrap = bootstrap
        self.topics = Topics(f"w{uuid4().hex[:10]}", "c")
        self.group = group or self.topics.prefix
        self.got: list[Wakeup] = []
        self.uses: Counter[Use] = Counter()
        self.max_age_s = max_age_s
        self.wakeups = self.make()

    def make(self) -> Wakeups:
        return Wakeups(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            topic=self.topics.status,
            record_types=WANTED,
            hand_over=self.take,
            max_age_s=self.max_age_s,
            on_records=self.count,
        )

    async def take(self, wakeups: Sequence[Wakeup]) -> None:
        self.got += wakeups

    def count(self, use: Use, count: int) -> None:
        self.uses[use] += count

    def ensure(self) -> None:
        ensure_topics(self.topics, bootstrap_servers=self.bootstrap, partitions=3, replication=1, retention_days=1)

    def send(
        self, record_type: str = "action_created", *, value: bytes | None = None, age_s: float = 0, count: int = 1
    ) -> UUID:
        """Records of one action, as Connect writes them."""
        action = uuid4()
        data = {"action_id": str(action), "provider": "resend", "account": "default"}
        producer = kafka_python.KafkaProducer(bootstrap_servers=self.bootstrap)
        for _ in range(count):
            producer.send(
                self.topics.status,
                key=str(action).encode(),
                value=json.dumps(data | {"action_id": str(action if count == 1 else uuid4())}).encode()
                if value is None
                else value,
                headers=[("ce_type", f"outbox-relay.delivery-status.{record_type}.v1".encode())],
                timestamp_ms=int((time.time() - age_s) * 1000),  # noqa: TID251 - a producer's clock, as Kafka wants it
            )
        producer.flush()
        producer.close()
        return action


@asynccontextmanager
async def running(wakeups: Wakeups) -> AsyncIterator[None]:
    """Run it beside the test, and end it cleanly."""
    stopping = asyncio.Event()
    task = asyncio.create_task(wakeups.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await task


async def until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def listener(kafka: KafkaServer) -> Listener:
    made = Listener(kafka.bootstrap)
    made.ensure()
    return made


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A broker that this test may kill."""
    with Stack(tmp_path, durable=False, name="killable") as stack:
        stack.start_broker()
        yield stack


async def test_a_wake_up_names_action_provider_and_account(listener: Listener) -> None:
    async with running(listener.wakeups):
        action = await asyncio.to_thread(listener.send)
        await until(lambda: bool(listener.got))
    assert listener.got == [Wakeup(action, "resend", "default", "action_created")]


async def test_records_of_other_types_and_nonsense_wake_nobody(listener: Listener) -> None:
    for record_type in ("dispatch_started", "delivery_confirmed"):
        listener.send(record_type)
    for value in (b"", b"{", b"[1]", b'{"action_id": "x", "provider": "p", "account": "a"}', b"\xff" * 70_000):
        listener.send(value=value)
    async with running(listener.wakeups):
        await until(lambda: listener.uses.total() == 7)
    assert listener.got == []
    assert listener.uses == {Use.OTHER: 2, Use.UNREADABLE: 5}


async def test_an_old_backlog_is_skipped_but_never_its_end(kafka: KafkaServer) -> None:
    """The due scan has what is old; a clock that is wrong must not make everything old."""
    listener = Listener(kafka.bootstrap, max_age_s=5)
    listener.ensure()
    await asyncio.to_thread(listener.send, count=600, age_s=60)
    async with running(listener.wakeups):
        await until(lambda: listener.uses.total() == 600)
        assert listener.uses[Use.OLD] == 500
        assert len(listener.got) == listener.uses[Use.WAKEUP] == 100
        await asyncio.to_thread(listener.send, age_s=3600)
        await until(lambda: len(listener.got) == 101)


async def test_a_setting_that_the_client_refuses_is_named_without_its_value(kafka: KafkaServer) -> None:
    listener = Listener(kafka.bootstrap)
    wakeups = Wakeups(
        bootstrap_servers=kafka.bootstrap,
        group_id="g",
        topic="t",
        record_types=WANTED,
        hand_over=listener.take,
        max_age_s=5,
        options={"security.protocol": "hunter2"},
    )
    with pytest.raises(SettingsError, match=r"security\.protocol") as raised:
        await wakeups.run(asyncio.Event())
    assert "hunter2" not in str(raised.value)


async def test_offsets_are_committed_after_the_hand_over(listener: Listener) -> None:
    listener.send()
    async with running(listener.wakeups):
        await until(lambda: bool(listener.got))
    listener.got.clear()
    async with running(listener.make()):
        second = await asyncio.to_thread(listener.send)
        await until(lambda: bool(listener.got))
    assert [wakeup.action_id for wakeup in listener.got] == [second]


async def test_a_wake_up_that_was_not_handed_over_comes_again(listener: Listener) -> None:
    action = listener.send()

    async def refuse(_: object) -> None:
        raise RuntimeError("the program ends here")

    broken = listener.make()
    broken._hand_over = refuse
    with pytest.raises(RuntimeError):
        await broken.run(asyncio.Event())
    async with running(listener.wakeups):
        await until(lambda: bool(listener.got))
    assert [wakeup.action_id for wakeup in listener.got] == [action]


async def test_a_lone_wake_up_does_not_wait_for_a_batch(listener: Listener) -> None:
    async with running(listener.wakeups):
        await until(lambda: listener.wakeups.healthy)
        began = time.monotonic()
        await asyncio.to_thread(listener.send)
        await until(lambda: bool(listener.got))
        assert time.monotonic() - began < 0.45


async def test_healthy_follows_the_topic_and_the_broker(own_stack: Stack) -> None:
    """A killed broker is noticed, and the same consumer goes on when it is back."""
    listener = Listener(own_stack.broker.bootstrap)
    async with running(listener.wakeups):
        await until(lambda: "available" in (listener.wakeups.trouble or ""))
        assert not listener.wakeups.healthy
        await asyncio.to_thread(listener.ensure)
        await until(lambda: listener.wakeups.healthy)
        await asyncio.to_thread(own_stack.broker.kill)
        await until(lambda: not listener.wakeups.healthy)
        await asyncio.to_thread(own_stack.start_broker)
        await until(lambda: listener.wakeups.healthy)
        action = await asyncio.to_thread(listener.send)
        await until(lambda: bool(listener.got))
    assert [wakeup.action_id for wakeup in listener.got] == [action]


def test_topics_are_made_once_and_as_stated(kafka: KafkaServer) -> None:
    topics = Topics(f"w{uuid4().hex[:10]}", "c")
    made = ensure_topics(topics, bootstrap_servers=kafka.bootstrap, partitions=5, replication=1, retention_days=3)
    assert set(made) == {topics.status, topics.heartbeat}
    again = ensure_topics(topics, bootstrap_servers=kafka.bootstrap, partitions=5, replication=1, retention_days=3)
    assert again == []
    with pytest.raises(ConditionNotMet, match="5 partitions, and 6 are configured"):
        ensure_topics(topics, bootstrap_servers=kafka.bootstrap, partitions=6, replication=1, retention_days=3)
