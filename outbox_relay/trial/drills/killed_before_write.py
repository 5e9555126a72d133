"""Drill 3: the worker reads the acceptance and dies before it can write it down.

The queue rows are locked from outside, so that the write hangs in the database; then the relay is killed and its
sessions are cut, as the death of its machine would, before the lock is released.
"""

from __future__ import annotations

from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HttpProgram, Profile, wait_until
from outbox_relay.trial.scenario import Scenario

NAME = "killed-before-write"
PROVIDERS = ("resend", "github")


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider at once, `runs` actions each."""
    with open_scenario(PROVIDERS, profile) as scenario:
        judge = Judge(scenario, seed)
        for number, size in batches(runs):
            relay = scenario.start_relay(f"relay-{number}")
            _kill_in_write(scenario, relay, f"batch{number}/", size)
            # Only now: a reconciler could not look at rows that are locked anyway.
            survivors = [scenario.start_relay(f"survivor-{number}"), scenario.start_reconciler(f"reconciler-{number}")]
            scenario.wait_settled(timeout_s=settle_timeout_s(profile))
            for each in survivors:
                each.terminate()
        for provider in PROVIDERS:
            prefix = f"{NAME}/{provider}/"
            judge.expect_one_confirmed_effect(provider, prefix)
            reasons = scenario.reasons_for_unknown(prefix)
            judge.expect(len(reasons) == runs, f"the acceptance was lost with the worker: {len(reasons)} of {runs}")
        return judge.results(NAME, {f"{NAME}/{provider}/": provider for provider in PROVIDERS})


def _kill_in_write(scenario: Scenario, relay: HttpProgram, batch: str, size: int) -> None:
    before = {name: len(place.announced("accepted")) for name, place in scenario.providers.items()}
    for provider, place in scenario.providers.items():
        prefix = f"{NAME}/{provider}/{batch}"
        place.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=1, key_prefix=prefix)
        scenario.add(provider, keys(prefix, size))
    for provider, place in scenario.providers.items():
        place.program.wait_for("accepted", count=before[provider] + size)
    with scenario.locked_queue(f"{NAME}/"):
        for place in scenario.providers.values():
            place.release("answer")
        wait_until(lambda: scenario.waiting_for_locks("relay"), timeout_s=10, what="the relay's write to hang")
        relay.kill()
        scenario.end_sessions("relay")
