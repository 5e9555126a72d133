"""The story: what an agent does, what goes wrong on the way, and what the ledger makes of it.

Every line in the terminal is something that has just happened; nothing is told in advance.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from outbox_relay.errors import ConditionNotMet
from outbox_relay.local.demo.stage import Stage
from outbox_relay.local.demo.terminal import Terminal
from outbox_relay.local.demo.witness import watching
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import wait_until
from outbox_relay.trial.scenario import SETTLED_DELIVERIES

SETTLE_S = 60.0
ENQUEUE = "select action_id::text, created, advice from outbox.enqueue(%s, %s, %s, %s)"
INTENT_CONFLICT = "OB001"
NOTICES = frozenset({"review_opened", "replay_started", "cancel_requested", "duplicate_suspected"})


@dataclass
class Told:
    """What the story did, for the judgement."""

    keys: dict[str, str] = field(default_factory=dict)
    """Action id to idempotency key, of everything that was committed."""
    rolled_back: list[str] = field(default_factory=list)
    seconds_to_first_acceptance: float = 0.0
    saw_unknown: set[str] = field(default_factory=set)
    """Keys of the actions that were seen in delivery_unknown."""
    must_have_been_unknown: set[str] = field(default_factory=set)
    records: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass
class _Agent:
    """Plays the agent, under its role alone and through SQL only."""

    stage: Stage
    terminal: Terminal
    told: Told

    def commit(self, deployment: int, provider: str, operation: str, key: str, payload: Mapping[str, object]) -> str:
        """Commit a business row and an action together and return the action's id."""
        with psycopg.connect(self.stage.ledger.dsn("agent")) as connection:
            connection.execute(
                "insert into deployments values (%s, 'finished') on conflict (number) do update set state = 'finished'",
                [deployment],
            )
            row = connection.execute(ENQUEUE, [provider, operation, key, json.dumps(payload)]).fetchone()
        if row is None:
            raise ConditionNotMet("enqueue returned nothing")
        self.told.keys[row[0]] = key
        self.terminal.does("agent", f"COMMIT: deployment {deployment} is finished, and {key} is to be sent")
        return str(row[0])

    def advice(self, key: str) -> tuple[str, str]:
        """Read (delivery_state, advice) as an agent does."""
        with psycopg.connect(self.stage.ledger.dsn("agent")) as connection:
            row = connection.execute(
                "select delivery_state, advice from outbox.action_status where idempotency_key = %s", [key]
            ).fetchone()
        if row is None:
            raise ConditionNotMet(f"the agent cannot see its own action {key}")
        return row[0], row[1]


def email(number: int) -> dict[str, object]:
    """An email as Resend takes it."""
    return {
        "from": "deploys@example.com",
        "to": ["oncall@example.com"],
        "subject": f"Deployment {number} finished",
        "text": "All checks passed. \u2713",
    }


def tell(stage: Stage, terminal: Terminal) -> Told:
    """Play all of it and return what was done."""
    told = Told()
    agent = _Agent(stage, terminal, told)

    def show(data: dict[str, Any]) -> None:
        key = told.keys.get(data["action_id"], data["action_id"])
        state = data["delivery_state"] if data["execution_state"] == "dispatch_finished" else data["execution_state"]
        if data["event"] in NOTICES:
            state = data["event"]
        if state == "delivery_unknown":
            told.saw_unknown.add(key)
        detail = ", ".join(
            f"{name} {data[name]}" for name in ("attempt", "reason", "provider_id", "resolution") if data[name]
        )
        terminal.status(key, state, f"({detail})" if detail else "")

    source = "the status topic, read by kafka-python" if stage.kafka is not None else "the agent's own changes"
    terminal.progress(f"lines marked status are {source}")
    with watching(stage, show) as witness:
        _plain_acceptance(agent)
        _roll_back(agent)
        _duplicate_trigger(agent)
        _changed_intent(agent)
        _answer_lost(agent, "accepted", Fault.ACCEPT_THEN_HANG)
        _answer_lost(agent, "dropped", Fault.HOLD_BEFORE_RECEIPT)
        _wait_for_records(stage, lambda: len({event_id for event_id, _ in witness.records}))
    told.records = witness.records
    return told


def _plain_acceptance(agent: _Agent) -> None:
    agent.terminal.act("1. An agent commits a business row and an action in one transaction")
    started = time.monotonic()
    agent.commit(41, "resend", "emails.send", "deploy-41-notify", email(41))
    wait_until(
        lambda: agent.advice("deploy-41-notify")[1] == "accepted",
        timeout_s=SETTLE_S,
        what="the first acceptance",
        poll_s=0.005,
    )
    agent.told.seconds_to_first_acceptance = round(time.monotonic() - started, 3)
    agent.terminal.does("agent", f"reads advice: accepted, {agent.told.seconds_to_first_acceptance:.3f} s after COMMIT")


def _roll_back(agent: _Agent) -> None:
    agent.terminal.act("2. A rollback sends nothing")
    key = "deploy-40-notify"
    with psycopg.connect(agent.stage.ledger.dsn("agent")) as connection:
        connection.execute("insert into deployments values (40, 'finished')")
        connection.execute(ENQUEUE, ["resend", "emails.send", key, json.dumps(email(40))])
        connection.rollback()
    agent.told.rolled_back.append(key)
    agent.terminal.does("agent", f"ROLLBACK: neither deployment 40 nor {key} exists")


def _duplicate_trigger(agent: _Agent) -> None:
    agent.terminal.act("3. The same trigger again finds the existing action")
    with psycopg.connect(agent.stage.ledger.dsn("agent")) as connection:
        row = connection.execute(
            ENQUEUE, ["resend", "emails.send", "deploy-41-notify", json.dumps(email(41))]
        ).fetchone()
    if row is None or row[1]:
        raise ConditionNotMet("a repeated trigger made a second action")
    agent.terminal.does("ledger", f"created: no; the existing action {row[0]} is {row[2]}")


def _changed_intent(agent: _Agent) -> None:
    agent.terminal.act("4. The same key with another content is refused")
    changed = email(41) | {"to": ["everyone@example.com"]}
    with psycopg.connect(agent.stage.ledger.dsn("agent")) as connection:
        try:
            with connection.transaction():
                connection.execute(ENQUEUE, ["resend", "emails.send", "deploy-41-notify", json.dumps(changed)])
        except psycopg.Error as error:
            if error.sqlstate != INTENT_CONFLICT:
                raise
            detail = json.loads(error.diag.message_detail or "{}")
            agent.terminal.does("ledger", f"{error.sqlstate}: {error.diag.message_primary}")
            agent.terminal.does("ledger", f"differs: {detail.get('differs')}; advice: {detail.get('advice')}")
        else:
            raise ConditionNotMet("a changed intent was not refused")


def _answer_lost(agent: _Agent, how: str, fault: Fault) -> None:
    accepted = how == "accepted"
    number = 42 if accepted else 43
    title = (
        "5. The provider accepts, the connection drops before the answer is read, and the relay is killed"
        if accepted
        else "6. The same, with the request dropped before the provider received it"
    )
    agent.terminal.act(title)
    stage = agent.stage
    keys = {"resend": f"deploy-{number}-notify", "github": f"deploy-{number}-comment"}
    for provider, key in keys.items():
        stage.scenario.providers[provider].spoil(fault, times=1, key=key)
    agent.commit(number, "resend", "emails.send", keys["resend"], email(number))
    comment = {"owner": "example", "repo": "shop", "issue_number": number, "body": f"Deployment {number} is live."}
    agent.commit(number, "github", "issue_comments.create", keys["github"], comment)
    for provider in keys:
        place = stage.scenario.providers[provider]
        place.program.wait_for("accepted" if accepted else "held", fault=fault.value)
        agent.terminal.does(provider, "accepted it, and holds the answer" if accepted else "has not received it yet")
    stage.relay.freeze()
    for provider in keys:
        stage.scenario.providers[provider].release("drop")
        agent.terminal.does(provider, "drops the connection")
    stage.relay.kill()
    agent.terminal.does("supervisor", f"SIGKILL to relay {stage.relay.pid}")
    stage.relay = stage.scenario.start_relay(f"relay-{number}")
    agent.terminal.does("supervisor", f"started relay {stage.relay.pid}")
    agent.told.must_have_been_unknown.update(keys.values())
    for key in keys.values():
        _wait_settled(agent, key)


def _wait_settled(agent: _Agent, key: str) -> None:
    state, advice = wait_until(
        lambda: found if (found := agent.advice(key))[0] in SETTLED_DELIVERIES else None,
        timeout_s=SETTLE_S,
        what=f"{key} to be settled",
        poll_s=0.05,
    )
    agent.terminal.does("agent", f"reads {key}: {state}, advice: {advice}")


def _wait_for_records(stage: Stage, seen: Callable[[], int]) -> None:
    """The last records may still be on their way when the ledger is settled."""
    with psycopg.connect(stage.ledger.dsn("owner"), autocommit=True) as connection:
        row = connection.execute("select count(*) from outbox.action_events").fetchone()
    expected = row[0] if row else 0
    wait_until(lambda: seen() >= expected, timeout_s=SETTLE_S, what=f"all {expected} records to be read", poll_s=0.05)
