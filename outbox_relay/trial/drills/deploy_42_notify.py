"""Drill 1 and 2, `deploy-42-notify`: the answer is lost and the worker is killed, after acceptance or before receipt.

Of each batch one half is accepted and its answers held; the requests of the other half are held before the provider
receives them. The relay is frozen, every connection dropped, the relay killed and another started. The two halves must
look the same to the worker, and be told apart by reconciliation.
"""

from __future__ import annotations

from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HttpProgram, Profile
from outbox_relay.trial.scenario import Scenario

NAME = "deploy-42-notify"
PROVIDERS = ("resend", "github")
HALVES = {"accepted": Fault.ACCEPT_THEN_HANG, "dropped": Fault.HOLD_BEFORE_RECEIPT}


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider at once, `runs` actions per half and provider."""
    with open_scenario(PROVIDERS, profile) as scenario:
        judge = Judge(scenario, seed)
        scenario.start_reconciler()
        relay = scenario.start_relay("relay-0")
        for number, size in batches(runs):
            _lose_and_kill(scenario, relay, f"batch{number}/", size)
            relay = scenario.start_relay(f"relay-{number + 1}")
            scenario.wait_settled(timeout_s=settle_timeout_s(profile))
        _judge(judge)
        results = []
        for half in HALVES:
            groups = {_prefix(half, provider): provider for provider in PROVIDERS}
            results += judge.results(f"{NAME} {half}", groups)
        return results


def _lose_and_kill(scenario: Scenario, relay: HttpProgram, batch: str, size: int) -> None:
    for provider, place in scenario.providers.items():
        for half, fault in HALVES.items():
            place.spoil(fault, times=None, nth=1, key_prefix=_prefix(half, provider) + batch)
    held_before = {provider: _held(scenario, provider) for provider in PROVIDERS}
    for provider in PROVIDERS:
        scenario.add(provider, [key for half in HALVES for key in keys(f"{_prefix(half, provider)}{batch}", size)])
    for provider, place in scenario.providers.items():
        for event, count in zip(("accepted", "held"), held_before[provider], strict=True):
            fault = HALVES["accepted" if event == "accepted" else "dropped"]
            place.program.wait_for(event, count=count + size, fault=fault.value)
    # The announced point: everything is accepted or held, and nothing has been answered.
    relay.freeze()
    for place in scenario.providers.values():
        place.release("drop")
    relay.kill()


def _held(scenario: Scenario, provider: str) -> tuple[int, int]:
    place = scenario.providers[provider]
    accepted = place.announced("accepted", fault=Fault.ACCEPT_THEN_HANG.value)
    return len(accepted), len(place.announced("held"))


def _judge(judge: Judge) -> None:
    for provider in PROVIDERS:
        for half in HALVES:
            judge.expect_one_confirmed_effect(provider, _prefix(half, provider))
        looks = {half: judge.scenario.reasons_for_unknown(_prefix(half, provider)) for half in HALVES}
        for half, reasons in looks.items():
            for key, found in reasons.items():
                judge.expect(found == {"claim_expired"}, f"{half} looks the same to the worker: {key} {found}")
            judge.expect(bool(reasons), f"{half} at {provider} was unknown")
    judge.expect_each(_prefix("accepted", "resend"), "resolved by replay", lambda each: each.resolution == "replay")
    judge.expect_each(_prefix("dropped", "resend"), "resolved by replay", lambda each: each.resolution == "replay")
    judge.expect_each(_prefix("accepted", "github"), "found by lookup", lambda each: each.resolution == "lookup")
    judge.expect_each(
        _prefix("dropped", "github"),
        "sent again after absence was proven",
        lambda each: each.resolution == "response" and each.attempts == 2,
    )


def _prefix(half: str, provider: str) -> str:
    return f"{NAME}/{provider}/{half}/"
