"""The answer is lost and the worker lives: the connection drops after acceptance, or before receipt.

The same two halves as `deploy-42-notify` without a kill. Both must leave the worker with the same reason.
"""

from __future__ import annotations

from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile

NAME = "lost-answer"
PROVIDERS = ("resend", "github")
HALVES = {"accepted": Fault.ACCEPT_THEN_DROP, "dropped": Fault.DROP_BEFORE_RECEIPT}


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider at once, `runs` actions per half and provider."""
    with open_scenario(PROVIDERS, profile) as scenario:
        judge = Judge(scenario, seed)
        scenario.start_reconciler()
        scenario.start_relay()
        for provider, place in scenario.providers.items():
            for half, fault in HALVES.items():
                place.spoil(fault, times=None, nth=1, key_prefix=_prefix(half, provider))
            scenario.add(provider, [key for half in HALVES for key in keys(_prefix(half, provider), runs)])
        scenario.wait_settled(timeout_s=settle_timeout_s(profile) + runs / 10)
        for provider in PROVIDERS:
            reasons: dict[str, set[str]] = {}
            for half in HALVES:
                judge.expect_one_confirmed_effect(provider, _prefix(half, provider))
                found = scenario.reasons_for_unknown(_prefix(half, provider))
                judge.expect(len(found) == runs, f"{half} at {provider} was unknown: {len(found)} of {runs}")
                reasons[half] = set().union(*found.values())
            same = len(reasons["accepted"]) == 1 and reasons["accepted"] == reasons["dropped"]
            judge.expect(same, f"both halves look the same to the worker at {provider}: {reasons}")
        return [
            result
            for half in HALVES
            for result in judge.results(f"{NAME} {half}", {_prefix(half, each): each for each in PROVIDERS})
        ]


def _prefix(half: str, provider: str) -> str:
    return f"{NAME}/{provider}/{half}/"
