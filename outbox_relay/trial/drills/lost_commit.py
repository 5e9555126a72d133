"""Drill 10: the acknowledgement of COMMIT is lost, for 30 % of the claims and then for 30 % of the outcomes.

The statement reaches PostgreSQL and is committed, the connection closes before the answer. Whoever asked must find out
what became of it: a claim that it has is sent once, an outcome that is stored is not stored twice.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import psycopg

from outbox_relay.trial.drill import CONFIRMED, DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.lossy import LossyTunnel
from outbox_relay.trial.processes import Profile
from outbox_relay.trial.scenario import Scenario

NAME = "lost-commit"
PROVIDERS = ("resend", "pagerduty", "github", "standard-webhooks")
"""Types A, C, D and E: for all of them a lost COMMIT must not even become an unknown."""
UNKNOWNS = ("resend", "github")
"""Where a reconciler replays, and where it looks: its claims and conclusions are lost as well."""
LOST = 0.3
STATEMENTS = {
    "claims": {"relay": ("claim_actions",), "reconciler": ("claim_unknowns", "begin_replay")},
    "outcomes": {
        "relay": ("record_outcomes",),
        "reconciler": ("record_resolutions", "postpone_unknowns", "open_reviews"),
    },
}
LEASE_S = 8.0
"""Long enough for a loaded machine to ask again, and to send, under the claim."""
GRACE_S = 20.0
"""For a loaded machine, on top of the bound."""


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider at once, `runs` actions each for claims and for outcomes."""
    with open_scenario(PROVIDERS, replace(profile, lease_s=max(profile.lease_s, LEASE_S))) as scenario:
        judge = Judge(scenario, seed)
        for which in STATEMENTS:
            _make_unknown(scenario, which, runs)
            _lose(judge, which, runs, lease_s=profile.lease_s)
        _judge(judge)
        results = []
        for which in STATEMENTS:
            results += judge.results(f"{NAME} {which}", {f"{NAME}/{which}/sent/{each}/": each for each in PROVIDERS})
            groups = {f"{NAME}/{which}/unknown/{each}/": each for each in UNKNOWNS}
            results += judge.results(f"{NAME} {which} of a reconciler", groups)
        return results


def _make_unknown(scenario: Scenario, which: str, runs: int) -> None:
    """Lost answers, for the reconciler's turn. A relay per batch: a storm opens its breaker."""
    for number, size in batches(runs):
        relay = scenario.start_relay(f"unlucky-{which}-{number}")
        for provider in UNKNOWNS:
            prefix = f"{NAME}/{which}/unknown/{provider}/batch{number}/"
            scenario.providers[provider].spoil(Fault.ACCEPT_THEN_DROP, times=None, nth=1, key_prefix=prefix)
            scenario.add(provider, keys(prefix, size))
        scenario.wait_for_count(
            size * len(UNKNOWNS),
            "a.delivery_state = 'delivery_unknown' and a.idempotency_key like %s",
            f"{NAME}/{which}/unknown/%/batch{number}/%",
            timeout_s=settle_timeout_s(scenario.profile),
            what="the answers to be lost",
        )
        relay.terminate()


def _lose(judge: Judge, which: str, runs: int, *, lease_s: float) -> None:
    scenario = judge.scenario
    with ExitStack() as stack:
        tunnels = {
            role: stack.enter_context(LossyTunnel(scenario.ledger.dsn(role), functions, rate=LOST, seed=judge.seed))
            for role, functions in STATEMENTS[which].items()
        }
        # One slot: a claim for every action, and an outcome for every claim.
        relay = scenario.start_relay(f"relay-{which}", OUTBOX_DATABASE_URL=tunnels["relay"].dsn, OUTBOX_SLOTS="1")
        # A replay whose beginning was lost costs the reconciler a lease: the short one.
        reconciler = scenario.start_reconciler(
            f"reconciler-{which}",
            OUTBOX_DATABASE_URL=tunnels["reconciler"].dsn,
            OUTBOX_SLOTS="1",
            OUTBOX_LEASE_S=str(lease_s),
        )
        for provider in PROVIDERS:
            scenario.add(provider, keys(f"{NAME}/{which}/sent/{provider}/", runs))
        scenario.wait_settled(
            prefix=f"{NAME}/{which}/", timeout_s=settle_timeout_s(scenario.profile) + 3 * runs + GRACE_S
        )
        for role, tunnel in tunnels.items():
            lost, answered = tunnel.lost.total(), tunnel.answered.total()
            judge.expect(lost > 0, f"nothing was lost: {answered} {which} of the {role} were answered")
        relay.terminate()
        reconciler.terminate()


def _judge(judge: Judge) -> None:
    scenario = judge.scenario
    for which in STATEMENTS:
        prefix = f"{NAME}/{which}/sent/"
        judge.expect_each(prefix, "claimed once", lambda each: each.attempts == 1)
        judge.expect_each(prefix, "known at once", lambda each: each.delivery_state == "delivery_confirmed")
        judge.expect(not scenario.reasons_for_unknown(prefix), f"a lost COMMIT of {which} became an unknown")
    judge.expect_each(f"{NAME}/", "confirmed", lambda each: each.delivery_state in CONFIRMED)
    judge.expect_each(f"{NAME}/", "no suspicion", lambda each: not each.duplicate_suspected)
    judge.expect(scenario.unused_acceptances() == 0, "an acceptance was kept and never used")
    bound_s = scenario.profile.unknown_within_s + GRACE_S
    longest_s = _longest_claim_s(scenario)
    judge.expect(longest_s <= bound_s, f"an action was under way for {longest_s:g} s, the bound is {bound_s:g} s")


def _longest_claim_s(scenario: Scenario) -> float:
    """The longest time from a relay's claim to what came of it.

    Not from the beginning of a replay: one that was lost is given back, and waits for its turn among all the others.
    """
    with psycopg.connect(scenario.ledger.dsn("owner")) as connection:
        row = connection.execute(
            "select coalesce(max(extract(epoch from next_at - occurred_at)), 0) from ("
            " select occurred_at, data::json ->> 'event' as event,"
            "        lead(occurred_at) over (partition by action_id order by sequence) as next_at"
            "   from outbox.action_events) e where event = 'claimed'"
        ).fetchone()
    return float(row[0]) if row else 0.0
