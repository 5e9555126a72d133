"""Drill 7: every answer that a provider can give about a key, each with its own meaning.

Mismatch, in progress (with the status of a mismatch), a stored and a fresh server error, a refused replay, to the first
request or to its replay. None of them may lead to a second effect, a new key, or a failure that nothing proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outbox_relay.trial.calendar import Calendar
from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.endings import (
    Ending,
    by_lookup,
    by_replay,
    expect_ending,
    proven_not_to_exist,
    with_a_person,
)
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile, wait_for_none_left
from outbox_relay.trial.scenario import Scenario
from outbox_relay.trial.sending import send_all

NAME = "key-answers"
BATCH = 20
"""Eight groups of a provider are sent together."""
TWICE = (2, 2)
UNTIL_RELEASED = (3, 24)
"""Attempts, while the provider says that it is still at work."""

FAULTS = {
    "server-error": (Fault.SERVER_ERROR,),
    "refused": (Fault.ACCEPT_THEN_DROP, Fault.REFUSE),
    "refusal-is-proof": (Fault.DROP_BEFORE_RECEIPT, Fault.REFUSE),
    "mismatch": (Fault.ACCEPT_THEN_DROP, Fault.MISMATCH),
    "mismatch-at-once": (Fault.MISMATCH,),
    "at-work": (Fault.WORK_UNTIL_RELEASED,),
    "at-work-at-once": (Fault.IN_PROGRESS,),
    "stored-error": (Fault.SERVER_ERROR_CACHED,),
    "stored-error-after-effect": (Fault.SERVER_ERROR_CACHED_AFTER_EFFECT,),
}
"""What happens to the first request of an action, and to the one after it."""
ABOUT_KEYS = ("mismatch", "mismatch-at-once", "at-work", "at-work-at-once")
STORED = ("stored-error", "stored-error-after-effect")
ANSWERS = {
    "resend": ("server-error", "refused", *ABOUT_KEYS),
    "trial-completion": ("server-error", "refused", *ABOUT_KEYS, *STORED),
    "stripe": ("server-error", "refused", *ABOUT_KEYS, *STORED),
    "trial-b": ("server-error", "refusal-is-proof", *ABOUT_KEYS),
    "pagerduty": ("server-error", "refused"),
}
"""What each provider can say."""
ENDINGS = {
    "server-error": by_replay(),
    "refused": with_a_person("replay_refused", effects=1, attempts=TWICE),
    "refusal-is-proof": proven_not_to_exist(attempts=TWICE),
    "mismatch": with_a_person("key_mismatch", effects=1, attempts=TWICE),
    "mismatch-at-once": with_a_person("key_mismatch", effects=0),
    "at-work": by_replay(attempts=UNTIL_RELEASED),
    "at-work-at-once": by_replay(),
    "stored-error": with_a_person("replayed_server_error", effects=0, attempts=TWICE),
    "stored-error-after-effect": with_a_person("replayed_server_error", effects=1, attempts=TWICE),
}
FOUND = ("refused", "mismatch", "stored-error-after-effect")
"""What a record settles where there is one. That it shows nothing is no proof here."""
HAS_RECORD = "stripe"
STEP_S = 120.0


@dataclass(frozen=True, slots=True)
class _Group:
    provider: str
    answer: str

    @property
    def prefix(self) -> str:
        return f"{NAME}/{self.provider}/{self.answer}/"

    @property
    def ending(self) -> Ending:
        in_record = self.provider == HAS_RECORD and self.answer in FOUND
        return by_lookup(attempts=TWICE) if in_record else ENDINGS[self.answer]


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider that honours a key at once, `runs` actions per answer."""
    with open_scenario(tuple(ANSWERS), profile) as scenario:
        judge = Judge(scenario, seed)
        groups = [_Group(provider, answer) for provider, answers in ANSWERS.items() for answer in answers]
        for group in groups:
            for nth, fault in enumerate(FAULTS[group.answer], start=1):
                scenario.providers[group.provider].spoil(fault, times=None, nth=nth, key_prefix=group.prefix)
        scenario.start_reconciler()
        for number, size in batches(runs, BATCH):
            for provider in ANSWERS:
                wanted = [f"{group.prefix}batch{number}/" for group in groups if group.provider == provider]
                scenario.add(provider, [key for prefix in wanted for key in keys(prefix, size)])
            relay = send_all(scenario, f"relay-{number}")
            _release_when_asked_again(scenario, groups, f"batch{number}/", size)
            _come_to_rest(scenario)
            relay.terminate()
        for group in groups:
            expect_ending(judge, group.provider, group.prefix, group.ending)
        results = judge.results(NAME, {group.prefix: group.provider for group in groups})
        return [replace(result, name=f"{NAME} {group.answer}") for group, result in zip(groups, results, strict=True)]


def _come_to_rest(scenario: Scenario) -> None:
    """A record that is no proof is asked five times in a quarter of an hour: at the default timings it passes at once.

    Only that: whoever is replayed has come to rest before, in the time that it takes.
    """
    timeout_s = 2 * settle_timeout_s(scenario.profile)
    if not scenario.profile.shortens_contracts:
        for provider in ANSWERS:
            if provider != HAS_RECORD:
                scenario.wait_settled(prefix=f"{NAME}/{provider}/", timeout_s=timeout_s)
        Calendar(scenario).turn_until(scenario.settled, step_s=STEP_S, timeout_s=timeout_s, what="all to be looked for")
    scenario.wait_settled(timeout_s=timeout_s)


def _release_when_asked_again(scenario: Scenario, groups: Sequence[_Group], batch: str, size: int) -> None:
    """The provider goes on working until every action has heard at least once that it is in progress."""
    at_work = [group for group in groups if group.answer == "at-work"]
    wait_for_none_left(
        lambda: sum(_not_asked_again(scenario, group, batch, size) for group in at_work),
        patience_s=2 * settle_timeout_s(scenario.profile),
        what=f"everything of {batch} to be asked for again while it is in progress",
        poll_s=0.2,
    )
    for group in at_work:
        scenario.providers[group.provider].release("answer")


def _not_asked_again(scenario: Scenario, group: _Group, batch: str, size: int) -> int:
    told = scenario.providers[group.provider].book.told("in_progress")
    return sum(key not in told for key in keys(f"{group.prefix}{batch}", size))
