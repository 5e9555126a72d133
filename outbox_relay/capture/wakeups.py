"""Reads the status topic and hands over what may be due: the relay and the reconciler wake up on it, nothing else.

A wake-up is a hint, the row in PostgreSQL is the truth: losing one costs a sweep, getting one twice a refused claim. So
it never waits for work to be done, never calls a provider, and commits an offset only after the hand-over.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.aio import AIOConsumer

from outbox_relay.capture.records import Use, Wakeup, read_wakeup
from outbox_relay.capture.vitals import Vitals, read_vitals
from outbox_relay.errors import DependencyDown, SettingsError

HandOver = Callable[[Sequence[Wakeup]], Awaitable[None]]
Options = Mapping[str, str | int | float | bool]

_POLL_S = 0.5
_BATCH_MAX = 1_000
_TAIL = 100
"""How many records before the end of a partition are read whatever their age."""
_COMMIT_EVERY_S = 1.0
_STATISTICS_MS = 1_000
_SILENT_AFTER_S = 5.0
"""Statistics that did not come for this long mean that the client is stuck."""
_BACKOFF_S = 0.5
_CLOSE_S = 10.0

_log = logging.getLogger("outbox_relay.kafka")


class Wakeups:
    """One consumer, owned by the one task that runs `run`."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group_id: str,
        topic: str,
        record_types: frozenset[str],
        hand_over: HandOver,
        max_age_s: float,
        options: Options | None = None,
        on_records: Callable[[Use, int], None] = lambda _use, _count: None,
        on_poll: Callable[[float], None] = lambda _gap_s: None,
    ) -> None:
        """`record_types` are those of states.py; `max_age_s` a few sweeps, because the due scan has older ones.

        `on_poll` is told how many seconds lie between two polls: beyond max.poll.interval.ms the group moves on.
        """
        self._configuration = _configuration(bootstrap_servers, group_id, options or {})
        self._topic = topic
        self._record_types = record_types
        self._hand_over = hand_over
        self._max_age_s = max_age_s
        self._on_records = on_records
        self._on_poll = on_poll
        self._polled_at: float | None = None
        self._vitals = Vitals.unknown()
        self._heard_at: float | None = None
        self._trouble: str | None = None
        self._fatal: str | None = None
        self._offsets: dict[int, int] = {}
        self._committed_at = 0.0

    @property
    def healthy(self) -> bool:
        """True while wake-ups can arrive: a broker is connected, the group is joined, the client reports."""
        return self.trouble is None

    @property
    def trouble(self) -> str | None:
        """Why no wake-ups can arrive now; None when they can."""
        if self._fatal or self._trouble:
            return self._fatal or self._trouble
        if self._heard_at is None or time.monotonic() - self._heard_at > _SILENT_AFTER_S:
            return "the Kafka client has not reported yet" if self._heard_at is None else "the Kafka client is silent"
        return self._vitals.trouble

    async def run(self, stopping: asyncio.Event) -> None:
        """Read until told to stop. Survives the loss of every broker; raises DependencyDown when the client is done."""
        executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix="wakeups")
        callbacks = {"stats_cb": self._note_statistics, "error_cb": self._note_error}
        try:
            consumer = AIOConsumer(self._configuration | callbacks, executor=executor)
        except KafkaException as error:
            executor.shutdown(wait=False)
            raise _unusable(error) from None
        try:
            await consumer.subscribe([self._topic])
            while not stopping.is_set():
                await self._turn(consumer, stopping)
        finally:
            await self._close(consumer)
            executor.shutdown(wait=False)

    async def _turn(self, consumer: AIOConsumer, stopping: asyncio.Event) -> None:
        """One poll and what came with it."""
        try:
            messages = await self._poll(consumer)
            await self._deliver(messages, await self._tails(consumer, messages))
            await self._commit(consumer)
        except KafkaException as error:
            self._judge(error.args[0])
            with suppress(TimeoutError):
                async with asyncio.timeout(_BACKOFF_S):
                    await stopping.wait()
        if self._fatal is not None:
            raise DependencyDown(
                f"the Kafka client cannot go on: {self._fatal}", hint="end this process; a new one starts afresh"
            )

    async def _poll(self, consumer: AIOConsumer) -> list[Message]:
        # `consume` waits until its batch is full or its time is up, which would delay a lone wake-up: wait for the
        # first message with `poll`, then take what has already arrived.
        now = time.monotonic()
        if self._polled_at is not None:
            self._on_poll(now - self._polled_at)
        self._polled_at = now
        first = await consumer.poll(_POLL_S)
        if first is None:
            return []
        return [first, *await consumer.consume(_BATCH_MAX - 1, 0)]

    async def _tails(self, consumer: AIOConsumer, messages: Sequence[Message]) -> dict[int, int]:
        """Per partition the offset from which on records count whatever their age; only asked when some are old.

        If a wrong clock made every record look old, the fast path would be dead and nobody would see why: so the last
        few before the end of a partition are never skipped.
        """
        old = {message.partition() for message in messages if self._is_old(message)}
        tails: dict[int, int] = {}
        for partition in old:
            if partition is not None:
                found = await consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)
                tails[partition] = max(0, found[1] - _TAIL) if found else 0
        return tails

    async def _deliver(self, messages: Sequence[Message], tails: Mapping[int, int]) -> None:
        good: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
            else:
                self._judge(error)
        if not good:
            return
        self._recovered()
        await self._hand_over_all(good, tails)
        for message in good:
            partition, offset = message.partition(), message.offset()
            if partition is not None and offset is not None:
                self._offsets[partition] = offset + 1

    async def _hand_over_all(self, messages: Sequence[Message], tails: Mapping[int, int]) -> None:
        """Hand over the young wake-ups of a batch, once per action."""
        counts = dict.fromkeys(Use, 0)
        wakeups: dict[Wakeup, None] = {}
        for message in messages:
            wakeup, use = self._read(message, tails)
            counts[use] += 1
            if wakeup is not None:
                wakeups[wakeup] = None
        for use, count in counts.items():
            if count:
                self._on_records(use, count)
        if wakeups:
            await self._hand_over(list(wakeups))

    def _read(self, message: Message, tails: Mapping[int, int]) -> tuple[Wakeup | None, Use]:
        if self._is_old(message) and (message.offset() or 0) < tails.get(message.partition() or 0, 0):
            return None, Use.OLD
        headers = message.headers() or []
        pairs = headers.items() if isinstance(headers, dict) else headers
        value = message.value()
        return read_wakeup(pairs, value if isinstance(value, bytes) else None, self._record_types)

    def _is_old(self, message: Message) -> bool:
        kind, milliseconds = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            return False
        # Only to skip work that the due scan does anyway; nothing is decided by this clock.
        return time.time() - milliseconds / 1000 > self._max_age_s  # noqa: TID251

    async def _commit(self, consumer: AIOConsumer, *, last: bool = False) -> None:
        now = time.monotonic()
        if not self._offsets or (not last and now - self._committed_at < _COMMIT_EVERY_S):
            return
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self._offsets.items()]
        self._offsets.clear()
        self._committed_at = now
        # Not waited for while reading: with the broker away that would hold up the loop, and re-reading costs little.
        await consumer.commit(offsets=offsets, asynchronous=not last)

    async def _close(self, consumer: AIOConsumer) -> None:
        with suppress(KafkaException, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                with suppress(KafkaException):
                    if self._vitals.trouble is None:
                        await self._commit(consumer, last=True)
                await consumer.close()

    async def _note_statistics(self, text: str) -> None:
        self._vitals = read_vitals(text, self._topic)
        self._heard_at = time.monotonic()
        if self._vitals.trouble is None:
            self._recovered()

    async def _note_error(self, error: KafkaError) -> None:
        self._judge(error)

    def _judge(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error.str()
            return
        if self._trouble is None:
            # The first of a kind of silence; the rest repeats until a broker is back.
            _log.warning("no wake-ups from Kafka: %s", error.str())
        self._trouble = error.str()

    def _recovered(self) -> None:
        if self._trouble is not None:
            _log.info("wake-ups from Kafka again")
        self._trouble = None


def _unusable(error: KafkaException) -> SettingsError:
    """Name the setting that the client refused, and not its value, which may be a password."""
    named = re.search(r'property "?([a-z0-9._]+)', error.args[0].str() if error.args else "")
    return SettingsError(
        f"the Kafka client refuses its settings{f': {named[1]}' if named else ''}", hint="correct OUTBOX_KAFKA_OPTIONS"
    )


def _configuration(bootstrap_servers: str, group_id: str, options: Options) -> dict[str, object]:
    """Our settings, the operator's over them, and over those what correctness rests on."""
    chosen: dict[str, object] = {
        "client.id": "outbox-relay",
        "session.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 1_000,
        "fetch.error.backoff.ms": 100,
        # A topic that appears later is found within this time.
        "topic.metadata.refresh.interval.ms": 10_000,
        "queued.max.messages.kbytes": 8_192,
        "partition.assignment.strategy": "cooperative-sticky",
        # Errors arrive at error_cb; the client's own lines repeat them many times a second.
        "log_level": 2,
    }
    fixed: dict[str, object] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group_id,
        # The client's defaults start at the end and commit before anything was handed over.
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": False,
        "allow.auto.create.topics": False,
        "statistics.interval.ms": _STATISTICS_MS,
    }
    return chosen | dict(options) | fixed
