"""The answer is lost and the worker lives: dropped after acceptance or before receipt, a 500, a success in ruins.

The first two must leave the worker with the same reason. Lookups lag and come in pages, so that an empty first page is
never proof.
"""

from __future__ import annotations

from dataclasses import replace

from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile
from outbox_relay.trial.samples import Sample, sample_of

NAME = "lost-answer"
PROVIDERS = ("resend", "github")
BATCH = 15
"""All of a batch fail together and open the relay's breaker, so that every batch has a relay of its own."""
GROUPS = {
    "accepted": Fault.ACCEPT_THEN_DROP,
    "dropped": Fault.DROP_BEFORE_RECEIPT,
    "failed": Fault.SERVER_ERROR_AFTER_EFFECT,
    "garbled": Fault.GARBAGE,
}
PAGE_SIZE = 10
LAG_S = 1.5
"""Lookups show a thing this late: after the reconciler's first look, and within the settle time."""
SETTLE_S = 2.0


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider at once, `runs` actions per group and provider."""
    with open_scenario(PROVIDERS, replace(profile, settle_s=SETTLE_S)) as scenario:
        judge = Judge(scenario, seed)
        scenario.providers["github"].change(lookup_lag_s=LAG_S, page_size=PAGE_SIZE)
        scenario.start_reconciler()
        for provider, place in scenario.providers.items():
            for group, fault in GROUPS.items():
                place.spoil(fault, times=None, nth=1, key_prefix=_prefix(group, provider))
        for number, size in batches(runs, BATCH):
            relay = scenario.start_relay(f"relay-{number}")
            for provider in PROVIDERS:
                wanted = [f"{_prefix(group, provider)}batch{number}/" for group in GROUPS]
                sample = _apart(sample_of(provider), number)
                scenario.add(provider, [key for prefix in wanted for key in keys(prefix, size)], sample=sample)
            scenario.wait_settled(timeout_s=settle_timeout_s(profile))
            relay.terminate()
        for provider in PROVIDERS:
            _judge(judge, provider, runs)
        return [
            result
            for group in GROUPS
            for result in judge.results(f"{NAME} {group}", {_prefix(group, each): each for each in PROVIDERS})
        ]


def _judge(judge: Judge, provider: str, runs: int) -> None:
    reasons: dict[str, set[str]] = {}
    for group in GROUPS:
        judge.expect_one_confirmed_effect(provider, _prefix(group, provider))
        found = judge.scenario.reasons_for_unknown(_prefix(group, provider))
        judge.expect(len(found) == runs, f"{group} at {provider} was unknown: {len(found)} of {runs}")
        reasons[group] = set().union(*found.values())
    same = len(reasons["accepted"]) == 1 and reasons["accepted"] == reasons["dropped"]
    judge.expect(same, f"accepted and dropped look the same to the worker at {provider}: {reasons}")


def _apart(sample: Sample, batch: int) -> Sample:
    """Another issue for every batch, so that a lookup reads a bounded number of pages."""
    if "issue_number" not in sample.payload:
        return sample
    return replace(sample, payload=sample.payload | {"issue_number": 42 + batch})


def _prefix(group: str, provider: str) -> str:
    return f"{NAME}/{provider}/{group}/"
