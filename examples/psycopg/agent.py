"""An agent that confirms orders by email, with psycopg 3 and SQL alone.

Run it twice with the same order: the second run finds what the first one did, and sends nothing. It calls no provider
and never will: it commits what it wants, next to its own data, and reads what became of it.

    DATABASE_URL=postgresql://outbox_agent@localhost/app python agent.py order-1
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[Any]
T = TypeVar("T")
SERIALIZATION_FAILURE = "40001"
INTENT_CONFLICT = "OB001"
ENQUEUE = "select action_id from outbox.enqueue('resend', 'emails.send', %s, %s)"
INSERT = """
    insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)
    values ('resend', 'emails.send', %s, %s) returning action_id
"""


def say(step: str, **fields: object) -> None:
    """Print one JSON line."""
    print(json.dumps({"step": step, **fields}, default=str), flush=True)


def key(order_id: str, verb: str) -> str:
    """Name what must happen once: tenant, object, id, verb, occurrence. Never a random part."""
    return f"shop:order:{order_id}:{verb}:1"


def email(order_id: str, subject: str) -> Jsonb:
    """The request that the provider will get, apart from the address and the credential."""
    return Jsonb({"from": "shop@example.com", "to": ["buyer@example.com"], "subject": subject, "text": order_id})


def place(connection: Connection, order_id: str) -> object:
    """Store the order and ask for its confirmation, together. Returns the action, new or existing."""
    with connection.transaction():
        connection.execute(
            "insert into shop.orders values (%s, 'buyer@example.com', 'placed') on conflict do nothing", (order_id,)
        )
        row = connection.execute(ENQUEUE, (key(order_id, "confirm"), email(order_id, "Thank you"))).fetchone()
    return row[0] if row else None


def place_and_fail(connection: Connection, order_id: str) -> int:
    """Roll back after asking: nothing is left, so nothing will be sent."""
    with connection.transaction(force_rollback=True):
        connection.execute("insert into shop.orders values (%s, 'buyer@example.com', 'placed')", (order_id,))
        connection.execute(INSERT, (key(order_id, "confirm"), email(order_id, "Thank you")))
    row = connection.execute(
        "select count(*) from outbox.action_status where idempotency_key = %s", (key(order_id, "confirm"),)
    ).fetchone()
    return int(row[0]) if row else 0


def insert_again(connection: Connection, order_id: str) -> int:
    """Use INSERT for a known action: no error and no second row, so RETURNING yields nothing."""
    with connection.transaction():
        return len(connection.execute(INSERT, (key(order_id, "confirm"), email(order_id, "Thank you"))).fetchall())


def change_mind(connection: Connection, order_id: str) -> tuple[str | None, str | None]:
    """Use a known key with another intent: refused, and with a savepoint the transaction goes on."""
    with connection.transaction():
        connection.execute("update shop.orders set status = 'confirming' where order_id = %s", (order_id,))
        try:
            with connection.transaction():  # a savepoint
                connection.execute(INSERT, (key(order_id, "confirm"), email(order_id, "Thank you SO much")))
        except psycopg.DatabaseError as error:
            if error.sqlstate != INTENT_CONFLICT:
                raise
            connection.execute("update shop.orders set status = 'already asked' where order_id = %s", (order_id,))
            return error.sqlstate, error.diag.message_detail
    return None, None


def with_retries(connection: Connection, work: Callable[[Connection], T], attempts: int = 5) -> tuple[T, int]:
    """Run a transaction at REPEATABLE READ; begin again when another one was faster (40001)."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    for attempt in range(1, attempts + 1):
        try:
            with connection.transaction():
                return work(connection), attempt
        except psycopg.DatabaseError as error:
            if error.sqlstate != SERIALIZATION_FAILURE or attempt == attempts:
                raise
    raise AssertionError("unreachable")


def race(url: str, order_id: str) -> tuple[object, int]:
    """Lose a race on purpose: a twin commits the same action after our snapshot was taken."""
    arguments = (key(order_id, "invoice"), email(order_id, "Your invoice"))

    def work(connection: Connection) -> object:
        connection.execute("select status from shop.orders where order_id = %s", (order_id,))
        with psycopg.connect(url, autocommit=True) as twin:
            twin.execute(ENQUEUE, arguments)
        row = connection.execute(ENQUEUE, arguments).fetchone()
        return row[0] if row else None

    with psycopg.connect(url, autocommit=True) as connection:
        return with_retries(connection, work)


def status(connection: Connection, order_id: str) -> dict[str, object]:
    """Read what became of it: advice says what to do, check_again_at when to look again."""
    row = connection.execute(
        "select advice, execution_state, delivery_state, check_again_at from outbox.action_status"
        " where idempotency_key = %s",
        (key(order_id, "confirm"),),
    ).fetchone()
    return dict(zip(("advice", "execution_state", "delivery_state", "check_again_at"), row, strict=True)) if row else {}


def main(order_id: str) -> None:
    """Tell the story of one order."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        say("committed", action_id=place(connection, order_id))
        say("rolled_back", actions=place_and_fail(connection, f"{order_id}-failed"))
        say("repeated", action_id=place(connection, order_id))
        say("inserted_again", rows=insert_again(connection, order_id))
        sqlstate, detail = change_mind(connection, order_id)
        say("refused", sqlstate=sqlstate, detail=detail)
        action_id, attempts = race(url, order_id)
        say("raced", action_id=action_id, attempts=attempts)
        say("status", **status(connection, order_id))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "order-1")
