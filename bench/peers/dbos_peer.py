"""DBOS doing the same job: a workflow of one step per message, queue polled every 0.1 s; it keeps the step's result."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig

from bench.errand import ORDERS, Errands, Place, body_of, main, ready
from bench.peers.handler import Poster

QUEUE = "messages"
APP_VERSION = "bench"
POLL_S = 0.1


def _url(place: Place) -> str:
    return place.dsn.replace("postgresql://", "postgresql+psycopg://")


def _config(place: Place) -> DBOSConfig:
    return DBOSConfig(
        name="bench",
        system_database_url=place.dsn,
        application_version=APP_VERSION,
        log_level="WARNING",
        sys_db_pool_size=20,
    )


@DBOS.step()
async def send(provider_url: str, key: str, body: str) -> str:
    """One POST; its result is what DBOS stores."""
    return await _poster(provider_url).post(key, body.encode())


@DBOS.workflow()
async def message(provider_url: str, key: str, body: str) -> str:
    """One step."""
    return await send(provider_url, key, body)


_posters: dict[tuple[int, str], Poster] = {}


def _poster(provider_url: str) -> Poster:
    # One per loop, because a session belongs to its loop.
    return _posters.setdefault((id(asyncio.get_running_loop()), provider_url), Poster(provider_url))


def _launch(place: Place) -> None:
    DBOS(config=_config(place))
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=place.in_flight, polling_interval_sec=POLL_S)


async def _migrate(place: Place) -> None:
    async with await psycopg.AsyncConnection.connect(place.dsn, autocommit=True) as connection:
        await connection.execute(ORDERS)
    await asyncio.to_thread(_launch, place)
    await asyncio.to_thread(DBOS.destroy)


async def _open_enqueue(place: Place) -> Callable[[list[str]], Awaitable[None]]:
    client = DBOSClient(system_database_url=place.dsn)
    engine = sqlalchemy.create_engine(_url(place))

    def put(keys: list[str]) -> None:
        with engine.begin() as connection:
            connection.execute(
                sqlalchemy.text("insert into orders (key) select unnest(cast(:keys as text[]))"), {"keys": keys}
            )
            for key in keys:
                options = {
                    "queue_name": QUEUE,
                    "workflow_name": "message",
                    "workflow_id": key,
                    "app_version": APP_VERSION,
                }
                client.enqueue_in_transaction(connection, options, place.provider_url, key, body_of(key).decode())

    async def enqueue(keys: list[str]) -> None:
        await asyncio.to_thread(put, keys)

    return enqueue


async def _work(place: Place) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await asyncio.to_thread(_launch, place)
    ready()
    await stopping.wait()
    await asyncio.to_thread(DBOS.destroy)


if __name__ == "__main__":
    main(Errands(_migrate, _open_enqueue, _work))
