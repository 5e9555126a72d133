"""Procrastinate doing the same job: 200 concurrent jobs, LISTEN/NOTIFY, finished jobs deleted, results inserted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import psycopg
from procrastinate import App, PsycopgConnector
from psycopg_pool import AsyncConnectionPool

from bench.errand import ORDERS, Errands, Place, body_of, main, ready
from bench.peers.handler import RESULTS, Poster

_ENQUEUE = (
    "select procrastinate_defer_jobs_v1(array_agg(row('message', 'message', 0, null, null,"
    " jsonb_build_object('key', key, 'body', body), null)::procrastinate_job_to_defer_v1))"
    " from unnest(%s::text[], %s::text[]) as given (key, body)"
)
"""What its own client sends, within the caller's transaction."""


def _app(place: Place) -> App:
    return App(connector=PsycopgConnector(conninfo=place.dsn, min_size=4, max_size=10))


async def _migrate(place: Place) -> None:
    async with await psycopg.AsyncConnection.connect(place.dsn, autocommit=True) as connection:
        await connection.execute(ORDERS)
        await connection.execute(RESULTS)
    async with _app(place).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def _open_enqueue(place: Place) -> Callable[[list[str]], Awaitable[None]]:
    connection = await psycopg.AsyncConnection.connect(place.dsn)

    async def enqueue(keys: list[str]) -> None:
        async with connection.transaction():
            await connection.execute("insert into orders (key) select unnest(%s::text[])", [keys])
            await connection.execute(_ENQUEUE, [keys, [body_of(key).decode() for key in keys]])

    return enqueue


async def _work(place: Place) -> None:
    app = _app(place)
    poster = Poster(place.provider_url)
    pool: AsyncConnectionPool[psycopg.AsyncConnection] = AsyncConnectionPool(
        place.dsn, min_size=2, max_size=4, open=False, kwargs={"autocommit": True}
    )

    @app.task(name="message", queue="message")
    async def message(key: str, body: str) -> None:
        provider_id = await poster.post(key, body.encode())
        async with pool.connection() as connection:
            await connection.execute("insert into results (key, provider_id) values (%s, %s)", [key, provider_id])

    async with pool, app.open_async():
        ready()
        await app.run_worker_async(
            queues=["message"], concurrency=place.in_flight, delete_jobs="successful", install_signal_handlers=True
        )


if __name__ == "__main__":
    main(Errands(_migrate, _open_enqueue, _work))
