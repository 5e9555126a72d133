"""The limit: claim, request and outcome in batches with nothing else. No system that promises more can be faster.

One ledger row and its event rows per action, PostgreSQL and one HTTP client, 200 requests in flight. It has no retry,
no lease, no limit, no fence and no log. BENCH_HTTP=aiohttp|own|raw picks the client: the usual one, the product's, or
the least there can be. BENCH_EVENTS=same|narrow says whether an event holds what the product's status record holds, or
just that a change happened.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import psycopg
from psycopg_pool import AsyncConnectionPool

from bench.errand import ORDERS, SEPARATORS, Errands, Place, main, payload_of, ready
from bench.rawhttp import RawClient
from outbox_relay.providers.http import HttpClient, open_http_client

LINGER_S = 0.002
BATCH_MAX = 200
IDLE_S = 0.002
"""How long an idle loop sleeps before it looks again."""
FREE_MIN = 50
"""A claim is worth a round trip from so many free slots on, while others are in flight."""

_TABLES = """
create table limit_actions (
  action_id uuid primary key default uuidv7(), idempotency_key text not null unique, payload jsonb not null,
  state smallint not null default 0, provider_id text, stored_at timestamptz
) with (fillfactor = 80);
create index limit_due on limit_actions (action_id) where state = 0;
create table limit_events (
  action_id uuid not null, sequence integer not null, event_id text, type text, source text, time text, subject text,
  data text, created_by text, occurred_at timestamptz not null default clock_timestamp(),
  primary key (action_id, sequence)
);
create function limit_event(p_action_id uuid, p_sequence integer, p_type text, p_same boolean) returns void
  language plpgsql as $$ begin
  if not p_same then
    insert into limit_events (action_id, sequence, type) values (p_action_id, p_sequence, p_type);
    return;
  end if;
  insert into limit_events (action_id, sequence, event_id, type, source, time, subject, data, created_by)
    values (p_action_id, p_sequence, p_action_id || '.' || p_sequence,
      'outbox-relay.delivery-status.' || p_type || '.v1', '/outbox-relay/00000000-0000-0000-0000-000000000000',
      clock_timestamp()::text, p_action_id,
      format('{"action_id":"%s","provider":"bench","account":"default","operation":"messages.send","event":"%s",'
        '"execution_state":"dispatch_finished","delivery_state":"delivery_confirmed","receipt_state":"not_expected",'
        '"previous_execution_state":"dispatch_started","previous_delivery_state":"delivery_pending","attempt":1,'
        '"reason":"http_200","provider_id":"msg_000000000001","resolution":"response","key_hash":"%s",'
        '"occurred_at":"%s"}', p_action_id, p_type, repeat('0', 64), clock_timestamp()), 'outbox_agent');
end $$;
"""
_ENQUEUE = (
    "with business as (insert into orders (key) select unnest(%(keys)s::text[])),"
    " actions as (insert into limit_actions (idempotency_key, payload)"
    "   select key, payload::jsonb from unnest(%(keys)s::text[], %(payloads)s::text[]) as given (key, payload)"
    "   returning action_id)"
    " select limit_event(action_id, 1, 'action_created', %(same)s) from actions"
)
_CLAIM = (
    "with claimed as (update limit_actions set state = 1 where action_id = any (array("
    "   select action_id from limit_actions where state = 0 order by action_id limit %(slots)s"
    "   for update skip locked)) returning action_id, idempotency_key, payload::text),"
    " told as (select count(limit_event(action_id, 2, 'dispatch_started', %(same)s)) from claimed)"
    " select claimed.* from claimed, told"
)
_STORE = (
    "with stored as (update limit_actions a set state = 2, provider_id = o.provider_id, stored_at = clock_timestamp()"
    "   from unnest(%(ids)s::uuid[], %(provider_ids)s::text[]) as o (action_id, provider_id)"
    "   where a.action_id = o.action_id and a.state = 1 returning a.action_id)"
    " select count(limit_event(action_id, 3, 'delivery_confirmed', %(same)s)) from stored"
)
# By primary key whatever the statistics say: otherwise the limit would measure a planner's mistake.
_OPTIONS = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"

Post = Callable[[str, bytes], Awaitable[bytes]]
Outcome = tuple[object, str]


def _same() -> bool:
    return os.environ.get("BENCH_EVENTS", "same") == "same"


async def _migrate(place: Place) -> None:
    async with await psycopg.AsyncConnection.connect(place.dsn, autocommit=True) as connection:
        await connection.execute(ORDERS)
        await connection.execute(_TABLES.encode())


async def _open_enqueue(place: Place) -> Callable[[list[str]], Awaitable[None]]:
    connection = await psycopg.AsyncConnection.connect(place.dsn, autocommit=True)

    async def enqueue(keys: list[str]) -> None:
        payloads = [json.dumps(payload_of(key), separators=SEPARATORS) for key in keys]
        await connection.execute(_ENQUEUE, {"keys": keys, "payloads": payloads, "same": _same()})

    return enqueue


class Loop:
    """Three parts: a claimer, as many senders as may be in flight, and one writer of outcomes."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection], post: Post, in_flight: int) -> None:
        self._pool = pool
        self._post = post
        self._in_flight = in_flight
        self._busy = 0
        self._claimed: asyncio.Queue[tuple[object, str, str]] = asyncio.Queue()
        self._done: list[Outcome] = []
        self._freed = asyncio.Event()
        self._arrived = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until told to stop."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._claim()), group.create_task(self._store())]
            tasks += [group.create_task(self._send()) for _ in range(self._in_flight)]
            await stopping.wait()
            for task in tasks:
                task.cancel()

    async def _claim(self) -> None:
        async with self._pool.connection() as connection:
            while True:
                free = self._in_flight - self._busy
                if free < min(FREE_MIN, self._in_flight):
                    self._freed.clear()
                    await self._freed.wait()
                    continue
                rows = await (await connection.execute(_CLAIM, {"slots": free, "same": _same()})).fetchall()
                self._busy += len(rows)
                for row in rows:
                    self._claimed.put_nowait(row)
                if not rows:
                    await asyncio.sleep(IDLE_S)

    async def _send(self) -> None:
        while True:
            action_id, key, payload = await self._claimed.get()
            answer = await self._post(key, payload.encode())
            self._done.append((action_id, json.loads(answer)["id"]))
            self._busy -= 1
            self._arrived.set()
            self._freed.set()

    async def _store(self) -> None:
        async with self._pool.connection() as connection:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(LINGER_S)
                self._arrived.clear()
                while self._done:
                    batch, self._done = self._done[:BATCH_MAX], self._done[BATCH_MAX:]
                    given = {"ids": [one[0] for one in batch], "provider_ids": [one[1] for one in batch]}
                    await connection.execute(_STORE, {**given, "same": _same()})


async def _work(place: Place) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    pool: AsyncConnectionPool[psycopg.AsyncConnection] = AsyncConnectionPool(
        place.dsn, min_size=2, max_size=2, open=False, kwargs={"autocommit": True, "options": _OPTIONS}
    )
    async with pool, _client(place) as post:
        ready()
        await Loop(pool, post, place.in_flight).run(stopping)


@asynccontextmanager
async def _client(place: Place) -> AsyncIterator[Post]:
    """The chosen client's way to post one payload under its key."""
    url = f"{place.provider_url}/messages"
    fixed = {"Authorization": "Bearer bench-api-key", "Content-Type": "application/json"}
    match os.environ.get("BENCH_HTTP", "aiohttp"):
        case "raw":
            raw = RawClient(place.provider_url)
            yield lambda key, body: raw.post("/messages", key, body)
        case "own":
            async with open_http_client() as own:
                yield partial(_post_by_own, own, url, fixed)
        case _:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
                yield partial(_post_by_aiohttp, session, url, fixed)


async def _post_by_aiohttp(
    session: aiohttp.ClientSession, url: str, fixed: Mapping[str, str], key: str, body: bytes
) -> bytes:
    async with session.post(url, data=body, headers={**fixed, "Idempotency-Key": key}) as answer:
        return await answer.read()


async def _post_by_own(client: HttpClient, url: str, fixed: Mapping[str, str], key: str, body: bytes) -> bytes:
    headers = {**fixed, "Idempotency-Key": key}
    sent = await client.exchange("POST", url, headers, body, may_send=lambda: True, deadline_s=10)
    if sent.answer is None:
        raise ConnectionError(sent.failure)
    return sent.answer.body


ERRANDS = Errands(_migrate, _open_enqueue, _work)

if __name__ == "__main__":
    main(ERRANDS)
