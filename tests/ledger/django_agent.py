"""An agent written with Django, run as a program of its own: Django's settings are one per process.

Its models name only the columns that an agent may set, and the key is the primary key, so that Django asks for nothing
back. Prints what became of each way to store an action, as one JSON object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import django
from django.conf import settings
from django.db import DatabaseError, connection, models, transaction
from psycopg.conninfo import conninfo_to_dict

PLACE = conninfo_to_dict(os.environ["DATABASE_URL"])
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": PLACE["dbname"],
            "USER": PLACE["user"],
            "HOST": PLACE["host"],
            "PORT": PLACE["port"],
            "OPTIONS": {"options": "-c search_path=outbox"},
        }
    },
    USE_TZ=True,
)
django.setup()

PAYLOAD = {"to": "a@example.com", "text": "hello"}


class OutboundAction(models.Model):  # type: ignore[misc]
    """The way that works."""

    idempotency_key = models.TextField(primary_key=True)
    provider = models.TextField()
    account = models.TextField(default="default")
    operation = models.TextField()
    payload = models.JSONField()
    ordering_key = models.TextField(null=True)  # noqa: DJ001 - the ledger knows null, and refuses an empty one
    priority = models.SmallIntegerField(default=1)

    class Meta:  # noqa: D106 - Django's
        managed = False
        app_label = "shop"
        db_table = "outbound_actions"

    def __str__(self) -> str:
        return str(self.idempotency_key)


class WithId(models.Model):  # type: ignore[misc]
    """What inspectdb makes of the table: the id is the primary key, and Django makes or asks for it."""

    action_id = models.UUIDField(primary_key=True, db_default=models.Func(function="gen_random_uuid"))
    idempotency_key = models.TextField()
    provider = models.TextField()
    operation = models.TextField()
    payload = models.JSONField()

    class Meta:  # noqa: D106 - Django's
        managed = False
        app_label = "shop"
        db_table = "outbound_actions"

    def __str__(self) -> str:
        return str(self.idempotency_key)


def action(key: str, **changes: object) -> OutboundAction:
    values: dict[str, object] = {"provider": "mail", "operation": "send", "payload": PAYLOAD}
    return OutboundAction(idempotency_key=key, **(values | changes))


def tried(store: Callable[[], object]) -> str | None:
    """The SQLSTATE with which it was refused."""
    try:
        with transaction.atomic():
            store()
    except DatabaseError as error:
        return str(getattr(error.__cause__, "sqlstate", error))
    return None


def advice(key: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("select advice from action_status where idempotency_key = %s", [key])
        return str(cursor.fetchone()[0])


def enqueue() -> None:
    with connection.cursor() as cursor:
        cursor.execute("select created from enqueue('mail', 'send', %s, %s)", ["k4", json.dumps(PAYLOAD)])


def main() -> None:
    """Store actions in every way that Django has."""
    outcome: dict[str, object] = {}
    with transaction.atomic():
        outcome["force_insert"] = tried(lambda: action("k1").save(force_insert=True))
        outcome["again"] = tried(lambda: action("k1").save(force_insert=True))
        outcome["other_intent"] = tried(lambda: action("k1", payload={"to": "b@example.com"}).save(force_insert=True))
        outcome["bulk"] = tried(lambda: OutboundAction.objects.bulk_create([action("k2"), action("k3")]))
        outcome["ignore_conflicts"] = tried(
            lambda: OutboundAction.objects.bulk_create([action("k2"), action("k2")], ignore_conflicts=True)
        )
        outcome["enqueue"] = tried(enqueue)
        outcome["save"] = tried(action("k5").save)
        outcome["empty_label"] = tried(lambda: action("k6", ordering_key="").save(force_insert=True))
        outcome["with_id"] = tried(
            lambda: WithId.objects.create(provider="mail", operation="send", idempotency_key="k7", payload=PAYLOAD)
        )
        outcome["read_table"] = tried(lambda: list(OutboundAction.objects.all()))
        outcome["read_key"] = tried(lambda: list(OutboundAction.objects.values_list("idempotency_key")))
    print(json.dumps(outcome | {"advice": advice("k1")}))


main()
