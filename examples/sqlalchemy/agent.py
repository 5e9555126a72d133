"""An agent that confirms orders by email, with SQLAlchemy 2: its own tables by the ORM, its actions by two statements.

Run it twice with the same order: the second run finds what the first one did, and sends nothing. Do not map the table
of the outbox as an entity: an agent may set a few columns and read two, and a unit of work would want more.

    DATABASE_URL=postgresql://outbox_agent@localhost/app python agent.py order-1
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

T = TypeVar("T")
SERIALIZATION_FAILURE = "40001"
INTENT_CONFLICT = "OB001"
# cast(... as jsonb), not ::jsonb: a colon begins a parameter here.
ENQUEUE = text("select action_id from outbox.enqueue('resend', 'emails.send', :key, cast(:payload as jsonb))")
INSERT = text(
    """
    insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)
    values ('resend', 'emails.send', :key, cast(:payload as jsonb)) returning action_id
    """
)
STATUS = text(
    """
    select advice, execution_state, delivery_state, check_again_at
      from outbox.action_status where idempotency_key = :key
    """
)


class Base(DeclarativeBase):
    """The shop's own tables."""


class Order(Base):
    """One order."""

    __tablename__ = "orders"
    __table_args__ = {"schema": "shop"}  # noqa: RUF012 - SQLAlchemy's own form
    order_id: Mapped[str] = mapped_column(primary_key=True)
    email: Mapped[str]
    status: Mapped[str]


def say(step: str, **fields: object) -> None:
    """Print one JSON line."""
    print(json.dumps({"step": step, **fields}, default=str), flush=True)


def action(order_id: str, verb: str, subject: str) -> dict[str, str]:
    """The key names what must happen once (tenant, object, id, verb, occurrence); the payload is the request."""
    email = {"from": "shop@example.com", "to": ["buyer@example.com"], "subject": subject, "text": order_id}
    return {"key": f"shop:order:{order_id}:{verb}:1", "payload": json.dumps(email)}


def place(engine: Engine, order_id: str) -> object:
    """Store the order and ask for its confirmation, together. Returns the action, new or existing."""
    with Session(engine) as session, session.begin():
        if session.get(Order, order_id) is None:
            session.add(Order(order_id=order_id, email="buyer@example.com", status="placed"))
            session.flush()
        return session.execute(ENQUEUE, action(order_id, "confirm", "Thank you")).scalar_one()


def place_and_fail(engine: Engine, order_id: str) -> int:
    """Roll back after asking: nothing is left, so nothing will be sent."""
    wanted = action(order_id, "confirm", "Thank you")
    with Session(engine) as session:
        session.add(Order(order_id=order_id, email="buyer@example.com", status="placed"))
        session.flush()
        session.execute(INSERT, wanted)
        session.rollback()
        return len(session.execute(STATUS, {"key": wanted["key"]}).all())


def insert_again(engine: Engine, order_id: str) -> int:
    """Use INSERT for a known action: no error and no second row, so RETURNING yields nothing."""
    with Session(engine) as session, session.begin():
        return len(session.execute(INSERT, action(order_id, "confirm", "Thank you")).all())


def change_mind(engine: Engine, order_id: str) -> tuple[str | None, str | None]:
    """Use a known key with another intent: refused, and with a savepoint the transaction goes on."""
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, order_id)
        order.status = "confirming"
        session.flush()
        try:
            with session.begin_nested():
                session.execute(INSERT, action(order_id, "confirm", "Thank you SO much"))
        except DBAPIError as error:
            if sqlstate(error) != INTENT_CONFLICT:
                raise
            order.status = "already asked"
            return sqlstate(error), getattr(getattr(error.orig, "diag", None), "message_detail", None)
    return None, None


def sqlstate(error: DBAPIError) -> str | None:
    """Our SQLSTATEs arrive unchanged on the driver's error."""
    return getattr(error.orig, "sqlstate", None)


def with_retries(engine: Engine, work: Callable[[Session], T], attempts: int = 5) -> tuple[T, int]:
    """Run a transaction at REPEATABLE READ; begin again when another one was faster (40001)."""
    strict = engine.execution_options(isolation_level="REPEATABLE READ")
    for attempt in range(1, attempts + 1):
        try:
            with Session(strict) as session, session.begin():
                return work(session), attempt
        except DBAPIError as error:
            if sqlstate(error) != SERIALIZATION_FAILURE or attempt == attempts:
                raise
    raise AssertionError("unreachable")


def race(engine: Engine, order_id: str) -> tuple[object, int]:
    """Lose a race on purpose: a twin commits the same action after our snapshot was taken."""
    wanted = action(order_id, "invoice", "Your invoice")

    def work(session: Session) -> object:
        session.get_one(Order, order_id)
        with Session(engine) as twin, twin.begin():
            twin.execute(ENQUEUE, wanted)
        return session.execute(ENQUEUE, wanted).scalar_one()

    return with_retries(engine, work)


def main(order_id: str) -> None:
    """Tell the story of one order."""
    engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1))
    say("committed", action_id=place(engine, order_id))
    say("rolled_back", actions=place_and_fail(engine, f"{order_id}-failed"))
    say("repeated", action_id=place(engine, order_id))
    say("inserted_again", rows=insert_again(engine, order_id))
    state, detail = change_mind(engine, order_id)
    say("refused", sqlstate=state, detail=detail)
    action_id, attempts = race(engine, order_id)
    say("raced", action_id=action_id, attempts=attempts)
    with Session(engine) as session:
        row = session.execute(STATUS, {"key": f"shop:order:{order_id}:confirm:1"}).mappings().one()
        say("status", **row)
    engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "order-1")
