"""Drill 12, first width: a relay is cut off and frozen past its lease with an acceptance in its hands, and comes back.

Its write is held on its way to the database, then the relay itself is stopped. Others take over. What the zombie
learned is kept and used; what it would change is refused.
"""

from __future__ import annotations

from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HttpProgram, Profile, wait_for_none_left
from outbox_relay.trial.scenario import Scenario, Standing
from outbox_relay.trial.tunnel import Tunnel

NAME = "zombie"
PROVIDERS = ("resend", "github")
MEETS = ("unknown", "settled")
"""What the zombie's action has become when it wakes."""


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider, `runs` actions each, meeting an unknown and then meeting a settled action."""
    with open_scenario(PROVIDERS, profile) as scenario:
        judge = Judge(scenario, seed)
        for meets in MEETS:
            for number, size in batches(runs):
                _wake_late(scenario, judge, meets, f"batch{number}", size)
        for provider in PROVIDERS:
            judge.expect_one_confirmed_effect(provider, f"{NAME}/{provider}/")
        judge.expect_each(f"{NAME}/", "no suspicion", lambda each: not each.duplicate_suspected)
        judge.expect(scenario.unused_acceptances() == 0, "an acceptance was kept and never used")
        return [
            result
            for meets in MEETS
            for result in judge.results(
                f"{NAME} meets {meets}", {f"{NAME}/{each}/{meets}/": each for each in PROVIDERS}
            )
        ]


def _wake_late(scenario: Scenario, judge: Judge, meets: str, batch: str, size: int) -> None:
    profile, group, known = scenario.profile, f"{meets}/{batch}", scenario.late_acceptances()
    with Tunnel(scenario.ledger.dsn("relay")) as tunnel:
        zombie = scenario.start_relay(f"zombie-{meets}-{batch}", OUTBOX_DATABASE_URL=tunnel.dsn)
        _cut_off_with_acceptances(scenario, zombie, tunnel, group, size)
        survivors = [scenario.start_relay(f"survivor-{meets}-{batch}")]
        if meets == "settled":
            survivors.append(scenario.start_reconciler(f"reconciler-{meets}-{batch}"))
            scenario.wait_settled(timeout_s=settle_timeout_s(profile))
        else:
            _wait_unknown(scenario, group, size)
        before = _states(scenario, group)
        tunnel.let_go()
        zombie.thaw()
        late = known + size * len(PROVIDERS)
        wait_for_none_left(
            lambda: max(0, late - scenario.late_acceptances()),
            patience_s=settle_timeout_s(profile),
            what=f"{late} late acceptances to be kept",
            poll_s=0.1,
        )
        judge.expect(_states(scenario, group) == before, f"a zombie changed the state of what is {meets}")
        if meets == "unknown":
            survivors.append(scenario.start_reconciler(f"reconciler-{meets}-{batch}"))
            scenario.wait_settled(timeout_s=settle_timeout_s(profile))
            used = all(each.resolution == "response" and each.attempts == 1 for each in _all(scenario, group))
            judge.expect(used, "a late acceptance was not what settled an unknown")
        for each in (zombie, *survivors):
            each.terminate()


def _cut_off_with_acceptances(scenario: Scenario, zombie: HttpProgram, tunnel: Tunnel, group: str, size: int) -> None:
    before = {name: len(place.announced("accepted")) for name, place in scenario.providers.items()}
    for provider, place in scenario.providers.items():
        place.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=1, key_prefix=_prefix(provider, group))
        scenario.add(provider, keys(_prefix(provider, group), size))
    for provider, place in scenario.providers.items():
        place.program.wait_for("accepted", count=before[provider] + size)
    tunnel.hold()
    for place in scenario.providers.values():
        place.release("answer")
    zombie.wait_for("attempt", count=size * len(PROVIDERS), finding="accepted", timeout_s=10)
    # Parsed and not written: what the zombie knows is in its memory and in what the tunnel holds.
    zombie.freeze()


def _wait_unknown(scenario: Scenario, group: str, size: int) -> None:
    scenario.wait_for_count(
        size * len(PROVIDERS),
        "a.delivery_state = 'delivery_unknown' and a.idempotency_key like %s",
        f"{NAME}/%/{group}/%",
        timeout_s=settle_timeout_s(scenario.profile),
        what="the claims to run out",
    )


def _all(scenario: Scenario, group: str) -> list[Standing]:
    return [each for provider in PROVIDERS for each in scenario.standings(_prefix(provider, group))]


def _states(scenario: Scenario, group: str) -> list[tuple[str, str, str | None, int]]:
    return [
        (each.execution_state, each.delivery_state, each.provider_id, each.attempts) for each in _all(scenario, group)
    ]


def _prefix(provider: str, group: str) -> str:
    return f"{NAME}/{provider}/{group}/"
