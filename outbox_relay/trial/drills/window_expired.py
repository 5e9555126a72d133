"""Drill 5: nobody looked until the provider's promise to recognise the key had ended, or was about to.

A day passes at once, at the providers and in the ledger. Past the window less its margin nothing is replayed: the
record is asked where there is one, and a person has the rest. A group inside the window shows that a replay would come.
One provider counts from completion, and completes half a day after the worker gave up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from outbox_relay.providers.registry import load_contracts
from outbox_relay.trial.calendar import Calendar
from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.endings import Ending, by_lookup, by_replay, expect_ending, sent_again, with_a_person
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile, wait_for_none_left
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import SETTLED_DELIVERIES, Scenario
from outbox_relay.trial.sending import send_all

NAME = "window-expired"
PROVIDERS = ("resend", "trial-completion", "stripe", "trial-a-plus", "trial-b", "pagerduty")
HALVES = {"accepted": Fault.ACCEPT_THEN_DROP, "dropped": Fault.DROP_BEFORE_RECEIPT}
LATE = "late"
COUNTS_FROM_COMPLETION = "trial-completion"
HALF_A_DAY_S = 43_200.0
OLD_S = 93_600.0
"""Longer than any of these providers promises to remember a key."""
READS_WITHIN_S = 15.0
BATCH = 40
"""Actions of one group that are sent together."""


@dataclass(frozen=True, slots=True)
class _Group:
    provider: str
    age: str
    """Where the action stands in its window when it is looked at: inside, margin or over."""
    half: str
    fault: Fault
    age_s: float

    @property
    def prefix(self) -> str:
        return f"{NAME}/{self.provider}/{self.age}/{self.half}/"


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider that honours a key at once, `runs` actions per group."""
    with open_scenario(PROVIDERS, profile) as scenario:
        judge = Judge(scenario, seed)
        groups = list(_groups(scenario))
        for group in groups:
            scenario.providers[group.provider].spoil(group.fault, times=None, nth=1, key_prefix=group.prefix)
        _lose_answers_over_days(scenario, groups, runs)
        _resolve_alerts(scenario)
        scenario.start_relay("relay-last")
        # Stripe's record holds what all groups there left in it, and each lookup of the oldest reads it to its end.
        scenario.start_reconciler(OUTBOX_LEASE_S=str(max(READS_WITHIN_S, profile.lease_s)))
        scenario.wait_settled(timeout_s=2 * settle_timeout_s(profile))
        _wait_settled(scenario, [group.prefix for group in groups if not _ending(group).reasons])
        for group in groups:
            expect_ending(judge, group.provider, group.prefix, _ending(group))
        results = judge.results(NAME, {group.prefix: group.provider for group in groups})
        return [
            replace(result, name=f"{NAME} {group.age}, {group.half}")
            for group, result in zip(groups, results, strict=True)
        ]


def _groups(scenario: Scenario) -> Sequence[_Group]:
    groups = []
    for provider in PROVIDERS:
        for age, age_s in _ages(scenario, provider).items():
            groups += [_Group(provider, age, half, fault, age_s) for half, fault in HALVES.items()]
    return [*groups, _Group(COUNTS_FROM_COMPLETION, "over", LATE, Fault.WORK_UNTIL_RELEASED, OLD_S)]


def _ages(scenario: Scenario, provider: str) -> dict[str, float]:
    contract = load_contracts(scenario.folder / "contracts")[provider]
    key = contract.operations[sample_of(provider).operation].idempotency
    window_s = key.window_s or 0.0
    if key.retention_s == "unpublished":
        return {"inside": window_s / 2, "over": HALF_A_DAY_S}
    # The provider still remembers in the margin: only we know that its clock and ours may differ.
    return {"inside": HALF_A_DAY_S, "margin": window_s + key.margin_s / 2, "over": OLD_S}


def _lose_answers_over_days(scenario: Scenario, groups: Sequence[_Group], runs: int) -> None:
    """The oldest first, each followed by the time until the next; nobody reconciles meanwhile."""
    calendar, lost = Calendar(scenario), 0
    days = sorted({group.age_s for group in groups}, reverse=True)
    for day, (age_s, next_age_s) in enumerate(pairwise([*days, 0.0])):
        today = [group for group in groups if group.age_s == age_s]
        for number, size in batches(runs, BATCH):
            for provider in PROVIDERS:
                wanted = [f"{group.prefix}batch{number}/" for group in today if group.provider == provider]
                scenario.add(provider, [key for prefix in wanted for key in keys(prefix, size)])
            relay = send_all(scenario, f"relay-{day}-{number}")
            lost += size * len(today)
            scenario.wait_for_count(
                lost,
                "a.delivery_state = 'delivery_unknown'",
                timeout_s=2 * settle_timeout_s(scenario.profile),
                what="every answer of the day to be lost",
            )
            relay.terminate()
        calendar.turn(age_s - next_age_s)
        _complete_late(scenario, sum(runs for group in today if group.half == LATE))


def _complete_late(scenario: Scenario, count: int) -> None:
    place = scenario.providers[COUNTS_FROM_COMPLETION]
    if count:
        wanted = len(place.book.effects()) + count
        place.release("answer")
        wait_for_none_left(
            lambda: max(0, wanted - len(place.book.effects())), patience_s=60, what="the work to complete", poll_s=0.1
        )


def _wait_settled(scenario: Scenario, prefixes: Sequence[str]) -> None:
    """An unknown that old has an owner at once, which is no rest where a replay or a record will settle it."""
    scenario.wait_for_count(
        sum(len(scenario.standings(prefix)) for prefix in prefixes),
        "a.delivery_state = any (%s) and a.idempotency_key like any (%s)",
        list(SETTLED_DELIVERIES),
        [f"{prefix}%" for prefix in prefixes],
        timeout_s=2 * settle_timeout_s(scenario.profile),
        what="everything to be settled that needs no person",
    )


def _resolve_alerts(scenario: Scenario) -> None:
    """People have dealt with the old alerts: from now on their key would open new ones."""
    place = scenario.providers["pagerduty"]
    for line in place.book.requests():
        if line.ref is not None and "/over/" in line.ref:
            place.forget(line.operation, account=line.account, key=line.ref)


def _ending(group: _Group) -> Ending:
    accepted = int(group.half != "dropped")
    match group.provider:
        case "trial-a-plus":
            return by_lookup() if accepted else sent_again()
        case _ if group.age == "inside":
            return by_replay()
        case "stripe" if accepted:
            return by_lookup()
        case "stripe":
            # Its list is no proof: the search goes on, and an unknown of a day's age has an owner meanwhile.
            reasons = ("window_over", "lookup_not_proof", "unresolved_too_long")
            return with_a_person(*reasons, effects=0)
        case _:
            return with_a_person("window_over", "window_unpublished", effects=accepted)
