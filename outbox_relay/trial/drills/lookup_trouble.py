"""Drill 6: the provider's record cannot be read, shows things late, comes in many pages, and in no order of its ids.

First every lookup fails for more than an hour: nothing is concluded, nothing is sent, and every action gets an owner.
Then things are shown twenty seconds late, the record is long and some of its pages fail: an early empty answer, or one
that ends in the middle, must not be taken for absence. What is there is found in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import LiteralString

from outbox_relay.trial.calendar import Calendar
from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.endings import Ending, by_lookup, expect_ending, sent_again, with_a_person
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile, wait_for_none_left
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import Scenario
from outbox_relay.trial.sending import send_all

NAME = "lookup-trouble"
PROVIDERS = ("github", "slack", "trial-a-plus")
PROOF = ("github", "trial-a-plus")
"""Whose empty record, read to its end and late enough, is proof."""
REPLAYS = ("trial-a-plus",)
"""Who honours a key as well."""
HALVES = {"accepted": Fault.ACCEPT_THEN_DROP, "dropped": Fault.DROP_BEFORE_RECEIPT}
TROUBLES = ("unreadable", "late")
FAILURES = (Fault.GARBAGE, Fault.HALF_ANSWER)
"""How a third of the lookups ends, each, while the record is unreadable; the rest are server errors."""
BATCH = 40
LAG_S = 20.0
PAGE_SIZE = 10
PAGES_FAIL = 0.05
OWNER_AFTER_S = 3700.0
STEP_S = 300.0
"""More than any of these contracts waits before an empty answer counts."""
NOT_AT_REST: LiteralString = (
    "starts_with(a.idempotency_key, %s) and a.delivery_state in ('delivery_unknown', 'delivery_pending')"
    " and not exists (select from outbox.reviews r where r.action_id = a.action_id and r.closed_at is null"
    " and r.reason = 'lookup_not_proof')"
)
LOOKED_FOR: LiteralString = (
    "a.idempotency_key like %s and (a.delivery_state <> 'delivery_unknown' or exists"
    " (select from outbox.evidence e where e.action_id = a.action_id and e.reason = 'empty_before_settled'))"
)


@dataclass(frozen=True, slots=True)
class _Group:
    provider: str
    trouble: str
    half: str

    @property
    def prefix(self) -> str:
        return f"{NAME}/{self.provider}/{self.trouble}/{self.half}/"

    @property
    def ending(self) -> Ending:
        if self.half == "accepted":
            return by_lookup()
        # A history that leaves things out never proves that one is not there.
        return sent_again() if self.provider in PROOF else with_a_person("lookup_not_proof", effects=0)


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider that is asked before anything else at once, `runs` actions per group."""
    # The contracts' own times: they pass at once.
    with open_scenario(PROVIDERS, replace(profile, shortens_contracts=False)) as scenario:
        judge, calendar = Judge(scenario, seed), Calendar(scenario)
        for place in scenario.providers.values():
            place.change(page_size=PAGE_SIZE, scattered=True)
        scenario.start_reconciler()
        for number, size in batches(runs, BATCH):
            _cannot_be_read(judge, number, size, calendar)
            _come_to_rest(scenario, calendar, f"relay-{number}-after-unreadable")
            _shows_late(judge, number, size)
            _come_to_rest(scenario, calendar, f"relay-{number}-after-late")
        groups = _groups()
        for group in groups:
            if group.provider in REPLAYS and group.trouble == "unreadable":
                # While the record cannot be read, a replay is as good: some may have been replayed.
                judge.expect_one_confirmed_effect(group.provider, group.prefix)
            else:
                expect_ending(judge, group.provider, group.prefix, group.ending)
        results = judge.results(NAME, {group.prefix: group.provider for group in groups})
        return [
            replace(result, name=f"{NAME} {group.trouble}, {group.half}")
            for group, result in zip(groups, results, strict=True)
        ]


def _groups(*troubles: str) -> list[_Group]:
    return [
        _Group(provider, trouble, half) for provider in PROVIDERS for trouble in troubles or TROUBLES for half in HALVES
    ]


def _cannot_be_read(judge: Judge, number: int, size: int, calendar: Calendar) -> None:
    """Nothing can be established: nothing is concluded or sent, and after an hour everything has an owner."""
    scenario = judge.scenario
    for place in scenario.providers.values():
        place.spoil(Fault.SERVER_ERROR, times=None, kind="lookup")
        for fault in FAILURES:
            place.spoil(fault, times=None, kind="lookup", probability=1 / 3)
    looked = _lookups(scenario)
    _lose_answers(scenario, "unreadable", number, size)
    _wait_looked(scenario, looked, 5)
    calendar.turn(OWNER_AFTER_S)
    # Now the settle time is over: an empty record would be proof.
    _wait_looked(scenario, _lookups(scenario), 2)
    for group in _groups("unreadable"):
        prefix = f"{group.prefix}batch{number}/"
        scenario.wait_settled(prefix=prefix, timeout_s=2 * settle_timeout_s(scenario.profile))
        if group.provider not in REPLAYS:
            owned = with_a_person("unresolved_too_long", effects=int(group.half == "accepted"))
            expect_ending(judge, group.provider, prefix, owned)
    for place in scenario.providers.values():
        place.heal("lookup")


def _lookups(scenario: Scenario) -> dict[str, int]:
    return {name: len(place.book.requests(kind="lookup")) for name, place in scenario.providers.items()}


def _wait_looked(scenario: Scenario, before: dict[str, int], more: int) -> None:
    """Until every record has been asked so many times more."""
    wait_for_none_left(
        lambda: sum(max(0, before[name] + more - count) for name, count in _lookups(scenario).items()),
        patience_s=2 * settle_timeout_s(scenario.profile),
        what=f"{more} more lookups at each provider",
        poll_s=0.1,
    )


def _shows_late(judge: Judge, number: int, size: int) -> None:
    """The first looks find an empty record, and must conclude nothing; later ones read every page of a long one."""
    scenario = judge.scenario
    for name, place in scenario.providers.items():
        place.change(lookup_lag_s=LAG_S)
        if name not in REPLAYS:
            place.spoil(Fault.SERVER_ERROR, times=None, kind="lookup", probability=PAGES_FAIL)
    _lose_answers(scenario, "late", number, size)
    like = f"{NAME}/%/late/%/batch{number}/%"
    scenario.wait_for_count(
        size * len(_groups("late")),
        LOOKED_FOR,
        like,
        timeout_s=2 * settle_timeout_s(scenario.profile),
        what="every action to be looked for",
    )
    early = scenario.count("a.idempotency_key like %s and a.attempt_count > 1", like)
    judge.expect(early == 0, f"{early} were sent again before their absence could be proven")


def _come_to_rest(scenario: Scenario, calendar: Calendar, relay: str) -> None:
    """Until everything was found, sent again after proof, or put before a person for good."""
    started = scenario.start_relay(relay)
    calendar.turn_until(
        lambda: not scenario.count(NOT_AT_REST, f"{NAME}/"),
        step_s=STEP_S,
        timeout_s=2 * settle_timeout_s(scenario.profile),
        what="everything to be found, sent again, or before a person",
    )
    started.terminate()


def _lose_answers(scenario: Scenario, trouble: str, number: int, size: int) -> None:
    for provider, place in scenario.providers.items():
        wanted = {half: f"{_Group(provider, trouble, half).prefix}batch{number}/" for half in HALVES}
        for half, prefix in wanted.items():
            place.spoil(HALVES[half], times=None, nth=1, key_prefix=prefix)
        sample = sample_of(provider).apart(2 * number + TROUBLES.index(trouble))
        scenario.add(provider, [key for prefix in wanted.values() for key in keys(prefix, size)], sample=sample)
    relay = send_all(scenario, f"relay-{number}-{trouble}")
    scenario.wait_for_count(
        size * len(_groups(trouble)),
        # However it goes on: nobody waits for its first attempt any more.
        "a.idempotency_key like %s and exists (select from outbox.action_events e"
        " where e.action_id = a.action_id and e.data::json ->> 'event' = 'response_lost')",
        f"{NAME}/%/{trouble}/%/batch{number}/%",
        timeout_s=2 * settle_timeout_s(scenario.profile),
        what="every answer to be lost",
    )
    relay.terminate()
