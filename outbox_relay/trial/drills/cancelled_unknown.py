"""Drill 13: the agent withdraws an action, or its deadline passes, while nobody knows whether it happened.

From then on the provider is only asked, never sent anything: what is found is confirmed, what is proven absent ends as
cancelled or expired, and what no record can tell goes to a person.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import psycopg

from outbox_relay.trial.calendar import Calendar
from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile, wait_until
from outbox_relay.trial.samples import Sample, sample_of
from outbox_relay.trial.scenario import Scenario, Standing

NAME = "cancelled-unknown"
PROVIDERS = ("resend", "pagerduty", "github", "slack", "standard-webhooks")
"""Types A, C, D whose record is proof, D whose record is none, and E."""
HAPPENED = {"accepted": Fault.ACCEPT_THEN_DROP, "dropped": Fault.DROP_BEFORE_RECEIPT}
WITHDRAWN = {"cancelled": "cancel_requested", "late": "deadline_passed"}
"""How the agent does not want it any more, and the reason for a person to look at what only a replay could settle."""
UNLUCKY = ("unlucky-a", "unlucky-b")
"""Answers that are lost together open a relay's breaker: there is another for what the first one leaves."""
DEADLINE_S = 10.0
"""For hundreds of requests at once: what is called accepted must have arrived."""
STEP_S = 120.0
DELIVER_WITHIN_S = 15.0
"""Long enough for a loaded machine to send, and to be waited for once."""

UNKNOWN = ("dispatch_finished", "delivery_unknown")
FOUND = ("dispatch_finished", "reconciled_confirmed")
ABSENT = {"cancelled": ("cancelled", "not_sent"), "late": ("expired", "not_sent")}


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider at once, `runs` actions per group and provider."""
    with open_scenario(PROVIDERS, profile) as scenario:
        judge = Judge(scenario, seed)
        for number, size in batches(runs):
            _make_unknown(scenario, number, size)
            _withdraw(scenario, f"batch{number}/")
            before = _requests(scenario)
            reconciler = scenario.start_reconciler(f"reconciler-{number}")
            relay = scenario.start_relay(f"relay-{number}")
            if not profile.shortens_contracts:
                # A record that is no proof is asked five times in a quarter of an hour: it passes at once.
                Calendar(scenario).turn_until(
                    scenario.settled, step_s=STEP_S, timeout_s=settle_timeout_s(profile), what="all to be looked for"
                )
            scenario.wait_settled(timeout_s=2 * settle_timeout_s(profile))
            relay.terminate()
            reconciler.terminate()
            judge.expect(_requests(scenario) == before, f"something was sent after batch {number} was withdrawn")
        _judge(judge)
        return [
            result
            for how in WITHDRAWN
            for happened in HAPPENED
            for result in judge.results(
                f"{NAME} {how} {happened}", {_prefix(each, how, happened): each for each in scenario.providers}
            )
        ]


def _make_unknown(scenario: Scenario, number: int, size: int) -> None:
    batch = f"batch{number}/"
    patience = {"OUTBOX_PROVIDER_DEADLINE_S": str(DEADLINE_S), "OUTBOX_LEASE_S": str(3 * DEADLINE_S)}
    relays = [scenario.start_relay(f"{name}-{batch[:-1]}", **patience) for name in UNLUCKY]
    for provider, place in scenario.providers.items():
        for how in WITHDRAWN:
            for happened, fault in HAPPENED.items():
                place.spoil(fault, times=None, nth=1, key_prefix=_prefix(provider, how, happened) + batch)
    with psycopg.connect(scenario.ledger.dsn("agent")) as agent:
        for provider in scenario.providers:
            for how in WITHDRAWN:
                within_s = DELIVER_WITHIN_S if how == "late" else None
                for happened in HAPPENED:
                    names = keys(_prefix(provider, how, happened) + batch, size)
                    _insert(agent, sample_of(provider).apart(number), names, within_s)
    scenario.wait_for_count(
        size * len(scenario.providers) * len(WITHDRAWN) * len(HAPPENED),
        "a.delivery_state = 'delivery_unknown' and a.idempotency_key like %s",
        f"{NAME}/%/{batch}%",
        timeout_s=settle_timeout_s(scenario.profile),
        what="the answers to be lost",
    )
    for relay in relays:
        relay.terminate()


def _insert(agent: psycopg.Connection, sample: Sample, names: Sequence[str], within_s: float | None) -> None:
    rows = [(sample.provider, sample.operation, key, json.dumps(sample.worded(key)), within_s) for key in names]
    with agent.cursor() as cursor:
        cursor.executemany(
            "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload, deliver_by)"
            " values (%s, %s, %s, %s, clock_timestamp() + %s * interval '1 s')",
            rows,
        )


def _withdraw(scenario: Scenario, batch: str) -> None:
    """The agent cancels the one half; the deadline of the other passes. Nobody looks meanwhile."""
    with psycopg.connect(scenario.ledger.dsn("agent"), autocommit=True) as agent:
        for each in scenario.standings(f"{NAME}/"):
            if "/cancelled/" in each.key and f"/{batch}" in each.key:
                agent.execute("select outbox.cancel(%s)", [each.key])
    wait_until(
        lambda: not scenario.count("a.deliver_by > clock_timestamp()"),
        timeout_s=DELIVER_WITHIN_S + settle_timeout_s(scenario.profile),
        what="the deadlines to pass",
        poll_s=0.2,
    )


def _judge(judge: Judge) -> None:
    for provider, place in judge.scenario.providers.items():
        effects = place.book.effects_per_key()
        for how, reason in WITHDRAWN.items():
            for happened in HAPPENED:
                reasons = _review_reasons(judge.scenario, _prefix(provider, how, happened))
                for each in judge.scenario.standings(_prefix(provider, how, happened)):
                    state, asked = _ending(provider, how, happened, reason)
                    judge.expect(_state(each) == state, f"{how}, {happened} ends as {state}: {each}")
                    judge.expect(reasons.get(each.key) == asked, f"asked for {asked}: {reasons.get(each.key)} {each}")
                    judge.expect(each.attempts == 1, f"sent once: {each}")
                    wanted = int(happened == "accepted")
                    judge.expect(effects.get(each.key, 0) == wanted, f"{effects.get(each.key, 0)} effects: {each}")


def _ending(provider: str, how: str, happened: str, reason: str) -> tuple[tuple[str, str], str | None]:
    """The states, and what a person is asked about."""
    match provider:
        case "github":
            return (FOUND, None) if happened == "accepted" else (ABSENT[how], None)
        case "slack":
            return (FOUND, None) if happened == "accepted" else (UNKNOWN, "lookup_not_proof")
        case "standard-webhooks":
            return UNKNOWN, "nothing_to_ask"
        case _:
            return UNKNOWN, reason


def _state(each: Standing) -> tuple[str, str]:
    return each.execution_state, each.delivery_state


def _review_reasons(scenario: Scenario, prefix: str) -> dict[str, str]:
    with psycopg.connect(scenario.ledger.dsn("owner")) as connection:
        rows = connection.execute(
            "select a.idempotency_key, r.reason from outbox.reviews r join outbox.outbound_actions a using (action_id)"
            " where r.closed_at is null and starts_with(a.idempotency_key, %s)",
            [prefix],
        ).fetchall()
    return dict(rows)


def _requests(scenario: Scenario) -> dict[str, int]:
    return {name: len(place.book.requests()) for name, place in scenario.providers.items()}


def _prefix(provider: str, how: str, happened: str) -> str:
    return f"{NAME}/{provider}/{how}/{happened}/"
