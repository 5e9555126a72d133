"""How a test makes visible what luck would hide: rows that lie in another order than they are asked for in.

A function that forgot its ORDER BY answers in the order in which rows lie, or in that of an index. So rows are made to
lie the wrong way round, and the session is told to use no index.
"""

from __future__ import annotations

from uuid import UUID

from psycopg import sql

from tests.ledger.factories import PAYLOAD, Stage


def use_no_index(stage: Stage, role: str) -> None:
    """From now on this role's session reads tables as they lie. First: a function that was called keeps its plan.

    Statistics say how small the tables are: a function that forbids itself to read whole ones does so all the same.
    """
    stage.owner.execute("analyze")
    for way in ("indexscan", "indexonlyscan", "bitmapscan", "mergejoin"):
        stage.as_(role).execute(sql.SQL("set {} = off").format(sql.Identifier(f"enable_{way}")))


def lay_last(stage: Stage, table: str, where: str) -> None:
    """Write these rows anew, unchanged, until they lie behind all others; as nobody could with the guards on."""
    column = stage.one(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and attidentity = ''"
        " order by attnum limit 1",
        f"outbox.{table}",
    )
    behind = (
        f"select coalesce((select min(ctid) from outbox.{table} where {where})"
        f" > (select max(ctid) from outbox.{table} where not ({where})), true) as holds"
    )
    with stage.owner.transaction():
        stage.owner.execute("set local session_replication_role = replica")
        for _ in range(100):  # a row may come to lie where another one lay before
            changed = stage.owner.execute(f"update outbox.{table} set {column} = {column} where {where}".encode())
            assert changed.rowcount > 0
            found = stage.owner.execute(behind.encode()).fetchone()
            if found and found["holds"]:
                return
    raise AssertionError("they do not come to lie last")


def falling_ids(stage: Stage, count: int, **columns: object) -> list[UUID]:
    """Actions whose ids fall while they are inserted; in order of their ids."""
    ids = [UUID(int=number) for number in range(count, 0, -1)]
    for number, action in enumerate(ids):
        row = {"provider": "mail", "operation": "send", "payload": PAYLOAD, "idempotency_key": f"falling-{number}"}
        stage.insert_as("owner", row | {"action_id": action} | columns)
    return sorted(ids)


def waits(stage: Stage, role: str, statement: str, *values: object) -> bool:
    """Would this statement wait for a lock that somebody holds? Tried by a session of its own, and taken back."""
    other = Stage(stage.ledger)
    other.as_(role).execute("set lock_timeout = '100ms'")
    refused = other.refusal(role, statement, *values)
    assert refused in (None, "55P03"), refused
    return refused is not None
