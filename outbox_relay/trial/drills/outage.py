"""Drill 14: a provider is down for "six hours", accelerated: as many actions as in hours are due within seconds.

What grows with an outage would grow with the actions due in it. The breaker keeps the number of unknowns small; on
recovery they are replayed, the shortest remaining window first, and everything ends confirmed once. Once with nobody
who reconciles until recovery, and once with a reconciler at work all the time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import combinations

import psycopg

from outbox_relay.trial.drill import CONFIRMED, DrillResult, Judge, OpenScenario, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile, wait_until
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import Scenario

NAME = "outage"
PROVIDERS = ("resend", "pagerduty", "github", "standard-webhooks")
"""Types A, C, D and E."""
REPLAYED = ("resend", "pagerduty")
PHASES = ("alone", "attended")
"""Without a reconciler until recovery, and with one."""
OUTAGE_LEAST_S = 8.0
RATE_MAX = 15.0
"""Actions that become due at one provider in a second."""
LEAD_S = 0.03
"""Per action, before the first one is due: all must be inserted by then, or what is late is due at once."""
WINDOW_S = 240.0
"""Many outages long, because a window that ends on a loaded machine would prove nothing here."""
OPENS_AFTER = 5
"""Troubles in a row that open the relay's breaker."""
UNDER_WAY = 6
"""Attempts that may have been under way when it opened,"""
CLAIM_S = 1.0
"""and what became due while a loaded machine made one claim."""
PROBE_GAP_S = 1.0
"""Before the first probe of an open breaker; doubled by each one that fails."""
DISORDER_MAX = 0.4
"""The part of the pairs that may come in the other order: several are under way at once. Chance makes half."""


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run both phases at every provider at once; `runs` actions become due in the course of each outage."""
    with open_scenario(PROVIDERS, replace(profile, window_s=WINDOW_S)) as scenario:
        judge = Judge(scenario, seed)
        for phase in PHASES:
            relay = scenario.start_relay(f"relay-{phase}")
            reconciler = scenario.start_reconciler() if phase == "attended" else None
            lasted_s = _outage(scenario, phase, runs)
            unknown = {each: _unknown(scenario, phase, each) for each in PROVIDERS}
            for provider, found in unknown.items():
                bound = OPENS_AFTER + UNDER_WAY + math.ceil(runs / _outage_s(runs) * CLAIM_S) + _probes(lasted_s)
                judge.expect(len(found) <= bound, f"{len(found)} unknowns at {provider} ({phase}), not {bound}")
                judge.expect(bool(found), f"the outage of {provider} ({phase}) was noticed")
            if phase == "attended":
                _judge_storm(judge, phase, lasted_s)
            _heal(scenario)
            reconciler = reconciler or scenario.start_reconciler()
            scenario.wait_settled(timeout_s=settle_timeout_s(profile) + 2 * lasted_s + runs / 5)
            for provider in REPLAYED if phase == "alone" else ():
                _judge_order(judge, provider, unknown[provider])
            relay.terminate()
            reconciler.terminate()
        _judge_endings(judge)
        return [
            result
            for phase in PHASES
            for result in judge.results(f"{NAME} {phase}", {_prefix(phase, each): each for each in PROVIDERS})
        ]


def _outage(scenario: Scenario, phase: str, runs: int) -> float:
    """Everything fails while actions become due at a steady rate. Returns the seconds that it lasted."""
    for place in scenario.providers.values():
        place.spoil(Fault.SERVER_ERROR, times=None)
        place.spoil(Fault.SERVER_ERROR, times=None, kind="lookup")
    began, lead_s, outage_s = time.monotonic(), LEAD_S * runs, _outage_s(runs)
    with psycopg.connect(scenario.ledger.dsn("agent")) as agent, agent.cursor() as cursor:
        for provider in PROVIDERS:
            sample = sample_of(provider)
            # The last one inserted is due first, so that no other order passes for that of the windows.
            rows = [
                (
                    provider,
                    sample.operation,
                    key,
                    json.dumps(sample.worded(key)),
                    lead_s + outage_s * (1 - number / runs),
                )
                for number, key in enumerate(keys(_prefix(phase, provider), runs))
            ]
            cursor.executemany(
                "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload, not_before)"
                " values (%s, %s, %s, %s, now() + %s * interval '1 s')",
                rows,
            )
    ends = time.monotonic() + lead_s + outage_s
    wait_until(lambda: time.monotonic() >= ends, timeout_s=2 * (lead_s + outage_s), what="the outage to end")
    return time.monotonic() - began


def _outage_s(runs: int) -> float:
    """Long enough for a loaded machine to see the actions become due one after the other."""
    return max(OUTAGE_LEAST_S, runs / RATE_MAX)


def _heal(scenario: Scenario) -> None:
    for place in scenario.providers.values():
        place.heal("operation")
        place.heal("lookup")


def _unknown(scenario: Scenario, phase: str, provider: str) -> dict[str, datetime]:
    """The keys of what became unknown and when they were first sent, in the order in which the windows end."""
    with psycopg.connect(scenario.ledger.dsn("owner")) as connection:
        rows = connection.execute(
            "select a.idempotency_key, a.first_attempt_at from outbox.outbound_actions a"
            " where starts_with(a.idempotency_key, %s) and a.delivery_state = 'delivery_unknown'"
            " order by a.first_attempt_at",
            [_prefix(phase, provider)],
        ).fetchall()
    return dict(rows)


def _probes(lasted_s: float) -> int:
    """How often an open breaker may have let a fresh action through: after 1 s, 2 s, 4 s and so on."""
    return math.ceil(math.log2(lasted_s / PROBE_GAP_S + 1))


def _judge_storm(judge: Judge, phase: str, lasted_s: float) -> None:
    """The reconciler probes too, and does not throw all of its cases at a provider that is down."""
    gap_s = judge.scenario.profile.deadline_s / 10
    bound = OPENS_AFTER + UNDER_WAY + 2 * math.ceil(math.log2(lasted_s / gap_s + 1))
    for provider in REPLAYED:
        requests = judge.scenario.providers[provider].book.requests()
        sent = [line.ref for line in requests if (line.ref or "").startswith(_prefix(phase, provider))]
        replays = len(sent) - len(set(sent))
        judge.expect(replays <= bound, f"{replays} replays at {provider} while it was down, not {bound}")


def _judge_order(judge: Judge, provider: str, unknown: Mapping[str, datetime]) -> None:
    """The second requests of the unknowns came in the order in which their windows end."""
    requests = judge.scenario.providers[provider].book.requests()
    came = {key: [line.number for line in requests if line.ref == key][-1] for key in unknown}
    # What was claimed together has windows that end together.
    pairs = [(one, other) for one, other in combinations(unknown, 2) if unknown[one] < unknown[other]]
    wrong = sum(came[first] > came[second] for first, second in pairs)
    what = f"the shortest window first at {provider}: {wrong} of {len(pairs)} pairs came in the other order"
    judge.expect(wrong <= DISORDER_MAX * len(pairs), what)


def _judge_endings(judge: Judge) -> None:
    scenario = judge.scenario
    for provider, place in scenario.providers.items():
        effects = place.book.effects_per_key()
        for phase in PHASES:
            for each in scenario.standings(_prefix(phase, provider)):
                if provider == "standard-webhooks" and each.delivery_state == "delivery_unknown":
                    # Neither a key nor a record: what became unknown is a person's, and stays at one attempt.
                    judge.expect(each.in_review and each.attempts == 1, f"with a person: {each}")
                else:
                    judge.expect(each.delivery_state in CONFIRMED, f"confirmed: {each}")
                    judge.expect(effects.get(each.key) == 1, f"{effects.get(each.key, 0)} effects: {each}")


def _prefix(phase: str, provider: str) -> str:
    return f"{NAME}/{phase}/{provider}/"
