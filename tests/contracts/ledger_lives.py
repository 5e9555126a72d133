"""Leads actions of a real ledger through every kind of life, so that its event table holds every record type.

Plays the agent, the relay, the reconciler and the operator with the functions that those call. Nothing waits: leases
and deadlines are given as passed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg

LEASE_MS = 60_000
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """The owner's connection, on which everybody is played."""

    owner: psycopg.Connection[Any]

    def one(self, query: str, *values: object) -> Any:
        """Run a statement that gives one value."""
        row: Row | None = self.owner.execute(query.encode(), values).fetchone()
        return row[0] if row else None

    def created(self, key: str, **labels: str) -> UUID:
        """An agent commits an action."""
        payload = json.dumps(
            {"from": "shop@example.com", "to": ["planted-recipient@example.com"], "subject": "planted-subject"}
        )
        columns = {
            "idempotency_key": key,
            "payload": payload,
            "provider": "resend",
            "operation": "emails.send",
            **labels,
        }
        names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
        query = f"insert into outbox.outbound_actions ({names}) values ({marks}) returning action_id"
        action: UUID = self.one(query, *columns.values())
        return action

    def claimed(self) -> UUID:
        """A relay claims whatever is due."""
        token = uuid4()
        demand = json.dumps([{"provider": "resend", "account": "default", "slots": 10}])
        self.owner.execute("select from outbox.claim_actions(%s, %s, %s, 1000, 'test')", (demand, token, LEASE_MS))
        return token

    def reported(self, action: UUID, token: UUID, event: str, **more: object) -> None:
        """A relay reports what its attempt proved."""
        outcome = {
            "action_id": str(action),
            "claim_token": str(token),
            "event": event,
            "reason": f"test_{event}",
            **more,
        }
        self.owner.execute("select from outbox.record_outcomes(%s)", (json.dumps([outcome]),))

    def sent(self, key: str, event: str, **more: object) -> UUID:
        """An action that had one attempt."""
        action = self.created(key)
        self.reported(action, self.claimed(), event, **more)
        return action

    def taken_up(self) -> UUID:
        """The reconciler claims every unknown."""
        token = uuid4()
        self.owner.execute("update outbox.work_queue set due_at = to_timestamp(0) where kind = 'unknown'")
        self.owner.execute("select from outbox.claim_unknowns(100, %s, %s, 1000, 'test')", (token, LEASE_MS))
        return token

    def resolved(self, action: UUID, event: str, **more: object) -> None:
        """The reconciler concludes."""
        conclusion = {"action_id": str(action), "claim_token": str(self.taken_up()), "event": event, "reason": event}
        rows = json.dumps([{**conclusion, "resend": False, **more}])
        self.owner.execute("select from outbox.record_resolutions(%s)", (rows,))
        self.owner.execute("update outbox.work_queue set claim_token = null, claimed_until = null")

    def reviewed(self, action: UUID, decision: str) -> None:
        """The reconciler hands over, and a person decides."""
        request = {
            "action_id": str(action),
            "claim_token": str(self.taken_up()),
            "reason": "window_closed",
            "owner": "test",
        }
        rows = json.dumps([{**request, "missing": "x", "next_step": "y", "due_in_ms": 1000}])
        self.owner.execute("select from outbox.open_reviews(%s)", (rows,))
        self.owner.execute("update outbox.work_queue set claim_token = null, claimed_until = null")
        self.decided(action, decision)

    def decided(self, action: UUID, decision: str) -> None:
        """A person decides the open review of an action."""
        review = self.one("select review_id from outbox.reviews where action_id = %s and closed_at is null", action)
        self.owner.execute("select outbox.decide_review(%s, %s, 'tested')", (review, decision))

    def receipt(self, action: UUID, state: str) -> None:
        """The provider's receipt arrives."""
        self.owner.execute(
            "update outbox.outbound_actions set receipt_state = %s, last_event = %s, last_actor = 'reconciler',"
            " event_sequence = event_sequence + 1, updated_at = outbox.now() where action_id = %s",
            (state, f"receipt_{state}", action),
        )


def lead_every_life(owner: psycopg.Connection[Any]) -> None:
    """Fill the event table. What each line is for is in its key."""
    cast = Cast(owner)
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    cast.created("waits", not_before="2999-01-01", traceparent=trace, tenant="planted-tenant")
    bounced = cast.sent("accepted-delivered-bounced", "accepted", provider_id="id-1")
    cast.receipt(bounced, "delivered")
    cast.receipt(bounced, "undelivered")
    cast.sent("refused", "refused")
    cast.sent("released", "released")
    cast.one("select outbox.cancel('released')")
    cast.sent("no-effect", "no_effect", retry_in_ms=3_600_000)
    held = cast.sent("held", "held")
    cast.decided(held, "release")
    cast.one("select outbox.cancel('held')")
    late = cast.created("late", deliver_by="2999-01-01", not_before="2999-01-01")
    owner.execute("update outbox.work_queue set deliver_by = now() - interval '1 second' where action_id = %s", (late,))
    cast.one("select outbox.sweep_deadlines(10)")
    cast.resolved(cast.sent("lost-found", "response_lost"), "found", provider_id="id-2")
    lead_lives_in_doubt(cast)


def lead_lives_in_doubt(cast: Cast) -> None:
    """The lives that need more than one look."""
    absent = cast.sent("lost-absent", "response_lost")
    cast.resolved(absent, "proven_absent")
    # A settled action of which an acceptance arrives after all.
    cast.reported(absent, uuid4(), "accepted", provider_id="id-9")
    cast.resolved(cast.sent("lost-resent", "response_lost"), "proven_absent", resend=True)
    cast.one("select outbox.cancel('lost-resent')")
    replayed = cast.sent("lost-replayed", "response_lost")
    token = cast.taken_up()
    cast.owner.execute("select from outbox.begin_replay(%s, %s, %s, 1000)", (replayed, token, LEASE_MS))
    cast.owner.execute("update outbox.work_queue set claim_token = null, claimed_until = null")
    cast.resolved(replayed, "replay_accepted", provider_id="id-3")
    withdrawn = cast.sent("lost-withdrawn", "response_lost")
    cast.one("select outbox.cancel('lost-withdrawn')")
    cast.resolved(withdrawn, "proven_absent")
    for decision in ("confirmed", "failed", "abandoned", "resend"):
        cast.reviewed(cast.sent(f"lost-decided-{decision}", "response_lost"), decision)
    cast.created("expired-claim")
    cast.claimed()
    cast.owner.execute("update outbox.work_queue set claimed_until = '-infinity' where claim_token is not null")
    cast.one("select outbox.sweep_expired_claims(100, 'reconciler')")
