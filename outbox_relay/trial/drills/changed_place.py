"""Drill 8: the account, its address or its mode is another one when the replay comes.

Another account or another server does not know the key: a replay there is a second effect, and its empty record says
nothing. So nothing is sent and nothing is concluded; a person is told why. When the place is put right again while the
window is open, everything goes on by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from outbox_relay.trial.calendar import Calendar
from outbox_relay.trial.declared import DeclaredAccount
from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.endings import Ending, by_lookup, by_replay, expect_ending, sent_again, with_a_person
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.place import SimulatedProvider
from outbox_relay.trial.processes import Profile, wait_for_none_left
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import SECRET, SECRET_VARIABLE, Scenario
from outbox_relay.trial.sending import send_all

NAME = "changed-place"
HALVES = {"accepted": Fault.ACCEPT_THEN_DROP, "dropped": Fault.DROP_BEFORE_RECEIPT}
REASONS = {"identity": "account_changed", "url": "base_url_changed", "mode": "account_not_live"}
CHANGES = {
    "resend": ("identity", "url", "mode"),
    "trial-a-plus": ("identity", "url"),
    "trial-b": ("identity", "url", "mode"),
    "pagerduty": ("identity", "url", "mode"),
    "github": ("identity", "url"),
}
"""An account without leave to send may still be asked for its record, so that its mode matters to replays alone."""
HAVE_RECORDS = ("trial-a-plus", "github")
OTHER_VARIABLE = "TRIAL_OTHER_SECRET"
OTHER_SECRET = SECRET[::-1].strip("=") + "="
BATCH = 30
LOOKS_AGAIN_S = 45.0
"""Per second of the deadline, more than a case waits for a change of the configuration."""


@dataclass(frozen=True, slots=True)
class _Group:
    provider: str
    change: str
    """Also the name of the account, so that every change has its own."""
    half: str

    @property
    def prefix(self) -> str:
        return f"{NAME}/{self.provider}/{self.change}/{self.half}/"

    @property
    def ending(self) -> Ending:
        """Once the place is what it was."""
        if self.provider not in HAVE_RECORDS:
            return by_replay()
        return by_lookup() if self.half == "accepted" else sent_again()


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at a provider of every type that can be asked or replayed at once, `runs` actions per group."""
    groups = [
        _Group(provider, change, half) for provider, changes in CHANGES.items() for change in changes for half in HALVES
    ]
    with open_scenario(tuple(CHANGES), profile) as scenario, ExitStack() as stack:
        judge = Judge(scenario, seed)
        scenario.environ[OTHER_VARIABLE] = OTHER_SECRET
        elsewhere = {provider: _start_elsewhere(scenario, stack, provider) for provider in CHANGES}
        _lose_answers(scenario, groups, runs)
        scenario.declare(_accounts(scenario, elsewhere))
        # The relay as well: what was taken for absent would be sent to the other place.
        misled = [scenario.start_relay("relay-misled"), scenario.start_reconciler("reconciler-misled")]
        scenario.wait_settled(timeout_s=2 * settle_timeout_s(profile))
        _judge_refusals(judge, groups, elsewhere)
        for program in misled:
            program.terminate()
        _put_right(scenario)
        for group in groups:
            expect_ending(judge, group.provider, group.prefix, group.ending)
        results = judge.results(NAME, {group.prefix: group.provider for group in groups})
        return [
            replace(result, name=f"{NAME} {group.change}, {group.half}")
            for group, result in zip(groups, results, strict=True)
        ]


def _start_elsewhere(scenario: Scenario, stack: ExitStack, provider: str) -> SimulatedProvider:
    contracts_dir = Path(scenario.environ["OUTBOX_CONTRACTS_DIR"])
    name = f"elsewhere-{provider}"
    started = SimulatedProvider.start(provider, folder=scenario.folder, contracts_dir=contracts_dir, name=name)
    return stack.enter_context(started)


def _accounts(scenario: Scenario, elsewhere: dict[str, SimulatedProvider] | None = None) -> Sequence[DeclaredAccount]:
    """One account per change; changed when there is an `elsewhere`."""
    accounts = []
    for provider, changes in CHANGES.items():
        for change in changes:
            url = scenario.providers[provider].url
            account = DeclaredAccount(provider, url, SECRET_VARIABLE, account=change, identity=f"{provider}-one")
            accounts.append(account if elsewhere is None else _changed(account, elsewhere[provider].url))
    return accounts


def _changed(account: DeclaredAccount, url: str) -> DeclaredAccount:
    match account.account:
        case "identity":
            return replace(account, identity=f"{account.provider}-two", secret_variable=OTHER_VARIABLE)
        case "url":
            return replace(account, base_url=url)
        case _:
            return replace(account, mode="hold")


def _lose_answers(scenario: Scenario, groups: Sequence[_Group], runs: int) -> None:
    scenario.declare(_accounts(scenario))
    for group in groups:
        place = scenario.providers[group.provider]
        place.spoil(HALVES[group.half], times=None, nth=1, key_prefix=group.prefix)
    lost = 0
    for number, size in batches(runs, BATCH):
        for provider, changes in CHANGES.items():
            for change in changes:
                wanted = [f"{_Group(provider, change, half).prefix}batch{number}/" for half in HALVES]
                named = [key for prefix in wanted for key in keys(prefix, size)]
                # An issue of its own per batch: of one that is longer than the contract's pages nothing is concluded.
                scenario.add(provider, named, account=change, sample=sample_of(provider).apart(number))
        relay = send_all(scenario, f"relay-{number}")
        lost += size * len(groups)
        scenario.wait_for_count(
            lost,
            "a.delivery_state = 'delivery_unknown'",
            timeout_s=2 * settle_timeout_s(scenario.profile),
            what="every answer to be lost",
        )
        relay.terminate()


def _judge_refusals(judge: Judge, groups: Sequence[_Group], elsewhere: dict[str, SimulatedProvider]) -> None:
    """With the place changed: nothing was sent, nobody was asked, and every action has an owner who is told why."""
    for group in groups:
        effects = int(group.half == "accepted")
        expect_ending(judge, group.provider, group.prefix, with_a_person(REASONS[group.change], effects=effects))
    for provider, place in elsewhere.items():
        judge.expect(not place.book.requests(), f"nothing was sent to the other server of {provider}")
        judge.expect(not place.book.requests(kind="lookup"), f"the other server of {provider} was not asked")
        accounts = {line.account for line in judge.scenario.providers[provider].book.requests()}
        judge.expect(len(accounts) <= 1, f"nothing was sent to {provider} as another account: {accounts}")


def _put_right(scenario: Scenario) -> None:
    """The places as they were: what can be replayed, found or proven absent now is, without anybody's decision."""
    scenario.declare(_accounts(scenario))
    scenario.start_relay("relay-last")
    scenario.start_reconciler("reconciler-last")
    Calendar(scenario).turn(LOOKS_AGAIN_S * scenario.profile.deadline_s)
    wait_for_none_left(
        lambda: scenario.count("a.delivery_state in ('delivery_unknown', 'delivery_pending')"),
        patience_s=2 * settle_timeout_s(scenario.profile),
        what="everything to go on once the place is right",
        poll_s=0.1,
    )
