"""The bare loop behind Debezium: a consumer that reads the status topic and notes when each record arrived. No ledger.

Same connector, same settings, same INSERT as the product; what lies between this and the product is the product's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from confluent_kafka import Consumer, TopicPartition

from bench import product
from bench.errand import Errands, Place, main, ready

POLL_S = 0.2


def _read(consumer: Consumer, stopping: asyncio.Event, arrivals: dict[str, float]) -> None:
    while not stopping.is_set():
        message = consumer.poll(POLL_S)
        if message is None or message.error() is not None:
            continue
        key = message.key()
        if isinstance(key, bytes):
            arrivals.setdefault(key.decode(), time.monotonic())


def _call(
    loop: asyncio.AbstractEventLoop, wake: Callable[[], None]
) -> Callable[[Consumer, list[TopicPartition]], None]:
    def assigned(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        loop.call_soon_threadsafe(wake)

    return assigned


async def _work(place: Place) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    topic = f"{urlsplit(place.dsn).path.strip('/')}.delivery-status.v1"
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BENCH_KAFKA"],
            "group.id": "bench-cdc",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    assigned = asyncio.Event()
    loop = asyncio.get_running_loop()
    consumer.subscribe([topic], on_assign=_call(loop, assigned.set))
    arrivals: dict[str, float] = {}
    reading = asyncio.create_task(asyncio.to_thread(_read, consumer, stopping, arrivals))
    await assigned.wait()
    ready()
    await reading
    consumer.close()
    print(json.dumps({"event": "arrivals", "arrivals": arrivals}), flush=True)


if __name__ == "__main__":
    main(Errands(product.ERRANDS.migrate, product.ERRANDS.open_enqueue, _work, product.ERRANDS.dismantle))
