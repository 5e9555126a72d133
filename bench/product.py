"""This product under measurement: its own migration, its own INSERT as its agent, its own relay as a process.

Nothing is switched off and nothing is set that an operator could not set. BENCH_KAFKA and BENCH_CONNECT name the broker
and Connect; without them the relay runs with WAKEUPS=ledger.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import yaml

from bench.errand import ORDERS, SEPARATORS, Errands, Place, main, payload_of
from outbox_relay.capture.connect_api import ConnectApi
from outbox_relay.capture.connector import Connector, apply
from outbox_relay.capture.topic import ensure_topics
from outbox_relay.ledger.migrate import RoleNames, migrate
from outbox_relay.ledger.pool import open_ledger
from outbox_relay.providers.accounts import load_accounts
from outbox_relay.providers.registry import load_contracts

CONTRACTS = Path(__file__).parent / "contracts"
ENVIRONMENT = "test"
CREDENTIALS = {"BENCH_API_KEY": "bench-api-key"}
INSERT = (
    "with business as (insert into orders (key) select unnest(%(keys)s::text[]))"
    " insert into outbox.outbound_actions (provider, operation, account, idempotency_key, payload, ordering_key,"
    " not_before)"
    " select 'bench', 'messages.send', account, key, payload::jsonb, ordering, due"
    " from unnest(%(accounts)s::text[], %(keys)s::text[], %(payloads)s::text[], %(ordering)s::text[],"
    " %(due)s::timestamptz[]) as given (account, key, payload, ordering, due)"
)


def as_role(dsn: str, role: str) -> str:
    """The same database under another role; the local server trusts everybody."""
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{getattr(RoleNames(), role)}@{parts.netloc.rpartition('@')[2]}"))


def accounts_file(place: Place, names: tuple[str, ...] = ("default",), path: str = "") -> Path:
    """A providers.yaml with live accounts. `path` goes before the operation's, such as /hang."""
    accounts = [
        {
            "provider": "bench",
            "account": name,
            "mode": "live",
            "base_url": place.provider_url + (path if name != "default" else ""),
            "identity": f"bench-{name}",
            "credentials": {"api_key": {"env": "BENCH_API_KEY"}},
            "slots": int(os.environ.get("BENCH_SLOTS", str(place.in_flight))),
            "review_owner": "bench",
        }
        for name in names
    ]
    file = Path(tempfile.gettempdir()) / f"bench-{os.getpid()}" / "providers.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump({"accounts": accounts}))
    return file


def payload_text(key: str) -> str:
    """The payload of an action; with BENCH_POISON one that the contract refuses when it is rendered."""
    payload = payload_of(key) | ({"to": ""} if os.environ.get("BENCH_POISON") else {})
    return json.dumps(payload, separators=SEPARATORS)


def _accounts(place: Place) -> tuple[Path, tuple[str, ...]]:
    names = tuple(os.environ.get("BENCH_ACCOUNTS", "default").split(","))
    return accounts_file(place, names, os.environ.get("BENCH_OTHERS_PATH", "")), names


def _connector(place: Place) -> Connector:
    name = urlsplit(place.dsn).path.strip("/")
    return Connector(name=name, slot_name=name, topic_prefix=name, database_url=as_role(place.dsn, "capture"))


async def _migrate(place: Place) -> None:
    await asyncio.to_thread(migrate, place.dsn, environment=ENVIRONMENT)
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute(ORDERS)
        connection.execute("grant select, insert, update on orders to outbox_agent")
    file, _ = _accounts(place)
    accounts = load_accounts(file, load_contracts(CONTRACTS), {**os.environ, **CREDENTIALS})
    async with open_ledger(place.dsn, environment=ENVIRONMENT, application="bench", max_size=1) as ledger:
        await ledger.accounts.apply([row for account in accounts for row in account.rows()])
    if "BENCH_CONNECT" in os.environ:
        connector, bootstrap = _connector(place), os.environ["BENCH_KAFKA"]
        ensure_topics(connector.topics, bootstrap_servers=bootstrap, partitions=12, replication=1, retention_days=1)
        apply(ConnectApi(os.environ["BENCH_CONNECT"]), connector)


async def _dismantle(place: Place) -> None:
    if "BENCH_CONNECT" in os.environ:
        name = _connector(place).name
        ConnectApi(os.environ["BENCH_CONNECT"]).delete(name)


async def _open_enqueue(place: Place) -> Callable[[list[str]], Awaitable[None]]:
    connection = await psycopg.AsyncConnection.connect(as_role(place.dsn, "agent"), autocommit=True)
    ordering_keys = int(os.environ.get("BENCH_ORDERING_KEYS", "0"))
    due = os.environ.get("BENCH_DUE")
    accounts = os.environ.get("BENCH_ENQUEUE_FOR", "default").split(",")
    number = 0

    async def enqueue(keys: list[str]) -> None:
        nonlocal number
        places = range(number, number + len(keys))
        number += len(keys)
        given = {
            "accounts": [accounts[place % len(accounts)] for place in places],
            "keys": keys,
            "payloads": [payload_text(key) for key in keys],
            "ordering": [f"o{place % ordering_keys}" if ordering_keys else None for place in places],
            "due": [due] * len(keys),
        }
        await connection.execute(INSERT, given)

    return enqueue


async def _work(place: Place) -> None:
    file, _ = _accounts(place)
    kafka = os.environ.get("BENCH_KAFKA")
    settings = {
        "OUTBOX_DATABASE_URL": as_role(place.dsn, "relay"),
        "OUTBOX_ENVIRONMENT": ENVIRONMENT,
        "OUTBOX_PROVIDERS_FILE": str(file),
        "OUTBOX_CONTRACTS_DIR": str(CONTRACTS),
        "OUTBOX_LISTEN": "127.0.0.1:0",
        "OUTBOX_LOG_FORMAT": "json",
        "OUTBOX_WAKEUPS": "kafka" if kafka else "ledger",
        **CREDENTIALS,
    }
    if kafka:
        settings |= {
            "OUTBOX_KAFKA_BOOTSTRAP_SERVERS": kafka,
            "OUTBOX_TOPIC_PREFIX": urlsplit(place.dsn).path.strip("/"),
        }
    command = os.environ.get("BENCH_RELAY", f"{sys.executable} -m outbox_relay").split()
    os.execvpe(command[0], command, {**os.environ, **settings})  # noqa: S606 - it becomes the relay


ERRANDS = Errands(_migrate, _open_enqueue, _work, _dismantle)

if __name__ == "__main__":
    main(ERRANDS)
