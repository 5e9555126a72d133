"""Drill 9: what was learned cannot be written down, for longer than the window in which a replay would be safe.

The provider has accepted, and its answers come when the ledger takes no outcomes any more: rights revoked, read-only,
or connections cut. Nothing may be claimed or sent until it does again, by whoever runs or starts meanwhile. Then
everything known is stored, and nothing is sent twice: by then the provider has forgotten the keys.
Then a reconciler loses its right to store while its replays are under way: nothing more is replayed, by any reconciler.
"""

from __future__ import annotations

from dataclasses import replace

from outbox_relay.trial.breaks import Break, cut_off, read_only, rights_revoked
from outbox_relay.trial.drill import CONFIRMED, DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HttpProgram, Profile, wait_until
from outbox_relay.trial.scenario import Scenario
from outbox_relay.trial.sending import SLOTS, send_all

NAME = "unwritable"
PROVIDERS = ("resend", "pagerduty", "github", "standard-webhooks")
"""Types A, C, D and E."""
REPLAYED = ("resend", "pagerduty")
BREAKS: dict[str, Break] = {"revoked": rights_revoked, "read-only": read_only, "cut": cut_off}
BATCH = 60
DEADLINE_S = 4.0
"""All answers must be held, and the ledger broken, before the first one's deadline ends."""


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run each break at every provider at once, `runs` actions per group, provider and break."""
    # A window in which a replay would be possible for a while after the claims ran out, and that ends in the outage.
    deadline_s, lease_s = max(profile.deadline_s, DEADLINE_S), max(profile.lease_s, DEADLINE_S + 2)
    window_s = lease_s + 2 * deadline_s + 1
    patient = replace(profile, deadline_s=deadline_s, lease_s=lease_s, window_s=window_s)
    return [
        *_relays(open_scenario, runs, seed, patient),
        *_reconcilers(open_scenario, runs, seed, replace(patient, window_s=None)),
    ]


def _relays(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    with open_scenario(PROVIDERS, profile) as scenario:
        judge = Judge(scenario, seed)
        relay = scenario.start_relay(OUTBOX_SLOTS=SLOTS)
        scenario.start_reconciler()
        for way, broken in BREAKS.items():
            for number, size in batches(runs, BATCH):
                _outage(judge, relay, broken, f"{way}/batch{number}/", size)
        judge.expect_each(f"{NAME}/", "confirmed", lambda each: each.delivery_state in CONFIRMED)
        judge.expect_each(f"{NAME}/", "sent once", lambda each: each.attempts == 1)
        judge.expect_each(f"{NAME}/", "no suspicion", lambda each: not each.duplicate_suspected)
        judge.expect(scenario.unused_acceptances() == 0, "an acceptance was kept and never used")
        return [
            result
            for way in BREAKS
            for result in judge.results(f"{NAME} {way}", {f"{NAME}/{each}/{way}/": each for each in PROVIDERS})
        ]


def _reconcilers(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    with open_scenario(REPLAYED, profile) as scenario:
        judge = Judge(scenario, seed)
        for number, size in batches(runs, BATCH):
            _replays_under_way(judge, f"replays/batch{number}/", size)
        judge.expect_each(f"{NAME}/", "confirmed", lambda each: each.delivery_state in CONFIRMED)
        # What was known and could not be stored is asked for again by whoever comes first, under the same key.
        judge.expect_each(f"{NAME}/", "replayed, and at most asked for once more", lambda each: 2 <= each.attempts <= 3)
        judge.expect_each(f"{NAME}/", "no suspicion", lambda each: not each.duplicate_suspected)
        judge.expect(scenario.unused_acceptances() == 0, "an acceptance was kept and never used")
        return judge.results(f"{NAME} replays", {f"{NAME}/{each}/replays/": each for each in REPLAYED})


def _replays_under_way(judge: Judge, batch: str, size: int) -> None:
    scenario, profile, name = judge.scenario, judge.scenario.profile, batch.replace("/", "-")
    before = {each: len(place.announced("accepted")) for each, place in scenario.providers.items()}
    for provider, place in scenario.providers.items():
        prefix = f"{NAME}/{provider}/{batch}"
        place.spoil(Fault.DROP_BEFORE_RECEIPT, times=None, nth=1, key_prefix=prefix)
        place.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=2, key_prefix=prefix)
        scenario.add(provider, keys(prefix, size))
    relay = send_all(scenario, f"relay-{name}")
    like = f"{NAME}/%/{batch}%"
    _wait_unknown(scenario, like, size * len(REPLAYED))
    relay.terminate()
    reconciler = scenario.start_reconciler(f"reconciler-{name}")
    for provider, place in scenario.providers.items():
        place.program.wait_for("accepted", count=before[provider] + 1)
    with rights_revoked(scenario):
        attempts = sum(each.attempts for each in scenario.standings(f"{NAME}/"))
        for place in scenario.providers.values():
            place.heal("operation")
            place.release("answer")
        reconciler.wait_for("conclusions_not_storable")
        fresh = scenario.begin_reconciler(f"fresh-{name}")
        fresh.wait_for("ledger_unavailable")
        wait_until(
            lambda: (
                not scenario.count(
                    "a.idempotency_key like %s and a.last_attempt_at + %s * interval '1 s' > clock_timestamp()",
                    like,
                    profile.lease_s,
                )
            ),
            timeout_s=settle_timeout_s(profile),
            what="the leases to run out",
            poll_s=0.2,
        )
        ready = [each.name for each in (reconciler, fresh) if each.get("/readyz")[0] == 200]
        judge.expect(not ready, f"{ready} say that they are ready while {batch} is broken")
        now = sum(each.attempts for each in scenario.standings(f"{NAME}/"))
        judge.expect(now == attempts, f"{now - attempts} were replayed while nothing could be stored")
    scenario.wait_settled(timeout_s=2 * settle_timeout_s(profile))
    for each in (reconciler, fresh):
        each.terminate()


def _wait_unknown(scenario: Scenario, like: str, count: int) -> None:
    scenario.wait_for_count(
        count,
        "a.delivery_state = 'delivery_unknown' and a.idempotency_key like %s",
        like,
        timeout_s=settle_timeout_s(scenario.profile),
        what="the answers to be lost",
    )


def _outage(judge: Judge, relay: HttpProgram, broken: Break, batch: str, size: int) -> None:
    scenario, profile = judge.scenario, judge.scenario.profile
    _wait_accepted(scenario, batch, size)
    answers = len(relay.events("attempt", finding="accepted"))
    refused = len(relay.events("outcomes_not_storable"))
    with broken(scenario):
        for place in scenario.providers.values():
            place.release("answer")
        relay.wait_for("attempt", count=answers + size * len(PROVIDERS), finding="accepted")
        relay.wait_for("outcomes_not_storable", count=refused + 1)
        before = _requests(scenario)
        for provider in PROVIDERS:
            scenario.add(provider, keys(f"{NAME}/{provider}/{batch}waiting/", size))
        fresh = scenario.begin_relay(f"fresh-{batch.replace('/', '-')}", OUTBOX_SLOTS=SLOTS)
        fresh.wait_for("ledger_unavailable")
        _wait_window_over(scenario, batch)
        ready = [each.name for each in (relay, fresh) if each.get("/readyz")[0] == 200]
        judge.expect(not ready, f"{ready} say that they are ready while {batch} is broken")
        judge.expect(_requests(scenario) == before, f"something was sent while {batch} was broken")
        waiting = scenario.count("a.idempotency_key like %s and a.attempt_count > 0", f"{NAME}/%/{batch}waiting/%")
        judge.expect(waiting == 0, f"{waiting} were claimed while {batch} was broken")
    scenario.wait_for_count(
        2 * size * len(PROVIDERS),
        "a.idempotency_key like %s and a.delivery_state = any (%s)",
        f"{NAME}/%/{batch}%",
        sorted(CONFIRMED),
        timeout_s=settle_timeout_s(profile),
        what=f"everything known of {batch} to be stored",
    )
    fresh.terminate()


def _wait_accepted(scenario: Scenario, batch: str, size: int) -> None:
    before = {name: len(place.announced("accepted")) for name, place in scenario.providers.items()}
    for provider, place in scenario.providers.items():
        prefix = f"{NAME}/{provider}/{batch}accepted/"
        place.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=1, key_prefix=prefix)
        scenario.add(provider, keys(prefix, size))
    for provider, place in scenario.providers.items():
        place.program.wait_for("accepted", count=before[provider] + size)


def _wait_window_over(scenario: Scenario, batch: str) -> None:
    profile = scenario.profile
    wait_until(
        lambda: (
            not scenario.count(
                "a.idempotency_key like %s and a.first_attempt_at + %s * interval '1 s' > clock_timestamp()",
                f"{NAME}/%/{batch}accepted/%",
                profile.window_s,
            )
        ),
        timeout_s=settle_timeout_s(profile),
        what="the window to end",
        poll_s=0.2,
    )


def _requests(scenario: Scenario) -> dict[str, int]:
    return {name: len(place.book.requests()) for name, place in scenario.providers.items()}
