"""PgQueuer doing the same job: asyncpg pool driver, batches of 100, results inserted by the handler."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from bench.errand import ORDERS, Errands, Place, body_of, main, ready
from bench.peers.handler import RESULTS, STORE, Poster

BATCH = 100


async def _migrate(place: Place) -> None:
    connection = await asyncpg.connect(place.dsn)
    await connection.execute(ORDERS)
    await connection.execute(RESULTS)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def _open_enqueue(place: Place) -> Callable[[list[str]], Awaitable[None]]:
    connection = await asyncpg.connect(place.dsn)
    queries = Queries(AsyncpgDriver(connection))

    async def enqueue(keys: list[str]) -> None:
        async with connection.transaction():
            await connection.execute("insert into orders (key) select unnest($1::text[])", keys)
            await queries.enqueue(["message"] * len(keys), [body_of(key) for key in keys], [0] * len(keys))

    return enqueue


async def _work(place: Place) -> None:
    pool = await asyncpg.create_pool(place.dsn, min_size=4, max_size=8)
    worker = PgQueuer.from_asyncpg_pool(pool)
    poster = Poster(place.provider_url)

    @worker.entrypoint("message")
    async def message(job: Job) -> None:
        body = job.payload or b""
        key = json.loads(body)["subject"]
        await pool.execute(STORE, key, await poster.post(key, body))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown.set)
    ready()
    await worker.run(batch_size=BATCH, max_concurrent_tasks=place.in_flight)


if __name__ == "__main__":
    main(Errands(_migrate, _open_enqueue, _work))
