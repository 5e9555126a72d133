"""Drill 4, first width: two relays at the same rows. Each row is claimed once and sent once, and both relays work."""

from __future__ import annotations

from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, keys
from outbox_relay.trial.processes import Profile

NAME = "two-relays"
PROVIDER = "resend"
ROWS_PER_RUN = 100
WAIT_S = 100.0


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it once over `runs` * 100 rows: 20 runs are the 2,000 rows of every test run."""
    rows = runs * ROWS_PER_RUN
    with open_scenario((PROVIDER,), profile) as scenario:
        judge = Judge(scenario, seed)
        relays = [scenario.start_relay(f"relay-{name}") for name in ("a", "b")]
        scenario.add(PROVIDER, keys(f"{NAME}/", rows))
        scenario.wait_settled(timeout_s=WAIT_S + rows / 50)
        judge.expect_each(f"{NAME}/", "claimed once", lambda each: each.attempts == 1)
        judge.expect_each(f"{NAME}/", "confirmed", lambda each: each.delivery_state == "delivery_confirmed")
        requests = scenario.providers[PROVIDER].book.requests()
        judge.expect(len(requests) == rows, f"one request each: {len(requests)} for {rows}")
        for relay in relays:
            judge.expect(bool(relay.events("attempt")), f"{relay.name} did nothing")
        return judge.results(NAME, {f"{NAME}/": PROVIDER})
