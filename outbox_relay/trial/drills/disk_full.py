"""Drill 9, the disk: the ledger's own, or that of PostgreSQL's WAL, is full for longer than a replay would be safe.

Without room for data every statement that needs a page more is refused, agents' among them. Without room for WAL the
server stops and does not come back before there is some. Either way nothing is claimed or sent, and afterwards
everything that was known is stored, without anybody's hand on a row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg

from outbox_relay.trial.drill import CONFIRMED, DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import START_S, HttpProgram, Profile, wait_until
from outbox_relay.trial.scenario import Scenario

if TYPE_CHECKING:
    from outbox_relay.local.small_disk import SmallDisk, SmallServer

NAME = "disk-full"
PROVIDERS = ("resend", "pagerduty", "github", "standard-webhooks")
"""Types A, C, D and E."""
WAYS = ("data", "wal")
DEADLINE_S = {"data": 3.0, "wal": 8.0}
"""All answers must be held, and the disk full, before the first one's deadline ends. A server takes a while to stop."""
STOPS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class _Stage:
    judge: Judge
    way: str
    disk: SmallDisk
    server: SmallServer
    relay: HttpProgram

    @property
    def scenario(self) -> Scenario:
        return self.judge.scenario


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run both disks at every provider at once, `runs` actions per group, provider and disk."""
    return [result for way in WAYS for result in fill(open_scenario, way, runs, seed, profile)]


def fill(open_scenario: OpenScenario, way: str, runs: int, seed: int, profile: Profile) -> Sequence[DrillResult]:
    """Run one of the disks."""
    # A server to start needs the extra [local], which the other drills can do without.
    from outbox_relay.local.small_disk import server_on, small_disk

    deadline_s = max(profile.deadline_s, DEADLINE_S[way])
    lease_s = max(profile.lease_s, deadline_s + 2)
    patient = replace(profile, deadline_s=deadline_s, lease_s=lease_s, window_s=lease_s + 2 * deadline_s + 1)
    with (
        small_disk() as disk,
        server_on(disk, wal=way == "wal") as server,
        open_scenario(PROVIDERS, patient, server.dsn()) as scenario,
    ):
        judge = Judge(scenario, seed)
        stage = _Stage(judge, way, disk, server, scenario.start_relay())
        scenario.start_reconciler()
        for number, size in batches(runs):
            _outage(stage, f"{way}/batch{number}/", size)
        judge.expect_each(f"{NAME}/", "confirmed", lambda each: each.delivery_state in CONFIRMED)
        judge.expect_each(f"{NAME}/", "sent once", lambda each: each.attempts == 1)
        judge.expect_each(f"{NAME}/", "no suspicion", lambda each: not each.duplicate_suspected)
        judge.expect(scenario.unused_acceptances() == 0, "an acceptance was kept and never used")
        judge.expect("No space left on device" in server.log_text(), "the disk of the server was full")
        return judge.results(f"{NAME} {way}", {f"{NAME}/{each}/{way}/": each for each in PROVIDERS})


def _outage(stage: _Stage, batch: str, size: int) -> None:
    scenario, relay = stage.scenario, stage.relay
    _wait_accepted(scenario, batch, size)
    answers = len(relay.events("attempt", finding="accepted"))
    refused = len(relay.events("outcomes_not_storable"))
    stage.disk.fill()
    if stage.way == "wal":
        _use_up_the_wal(stage.server, timeout_s=STOPS_WITHIN_S)
    for place in scenario.providers.values():
        place.release("answer")
    relay.wait_for("attempt", count=answers + size * len(PROVIDERS), finding="accepted")
    relay.wait_for("outcomes_not_storable", count=refused + 1)
    before = _requests(scenario)
    left_over = [provider for provider in PROVIDERS if not _inserted(scenario, provider, batch, size)]
    fresh = scenario.begin_relay(f"fresh-{batch.replace('/', '-')}")
    # The probe's row may still fit. Room is wanted at the latest when the claims of what is in flight have run out.
    fresh.wait_for("ledger_unavailable", timeout_s=START_S + scenario.profile.unknown_within_s)
    _wait_window_over(stage, relay, fresh)
    stage.judge.expect(_requests(scenario) == before, f"something was sent while the disk of {batch} was full")
    stage.disk.free()
    if not stage.server.running:
        stage.server.start()
    for provider in left_over:
        stage.judge.expect(_inserted(scenario, provider, batch, size), f"agents may insert again after {batch}")
    scenario.wait_for_count(
        2 * size * len(PROVIDERS),
        "a.idempotency_key like %s and a.delivery_state = any (%s)",
        f"{NAME}/%/{batch}%",
        sorted(CONFIRMED),
        timeout_s=settle_timeout_s(scenario.profile),
        what=f"everything known of {batch} to be stored",
    )
    fresh.terminate()


def _inserted(scenario: Scenario, provider: str, batch: str, size: int) -> bool:
    """Whether an agent's transaction was taken. What is refused is refused as a whole, in the agent's own hands."""
    try:
        scenario.add(provider, keys(f"{NAME}/{provider}/{batch}waiting/", size))
    except psycopg.OperationalError:  # DiskFull is one
        return False
    return True


def _wait_accepted(scenario: Scenario, batch: str, size: int) -> None:
    before = {name: len(place.announced("accepted")) for name, place in scenario.providers.items()}
    for provider, place in scenario.providers.items():
        prefix = f"{NAME}/{provider}/{batch}accepted/"
        place.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=1, key_prefix=prefix)
        scenario.add(provider, keys(prefix, size))
    for provider, place in scenario.providers.items():
        place.program.wait_for("accepted", count=before[provider] + size)


def _wait_window_over(stage: _Stage, *relays: HttpProgram) -> None:
    """By our own clock: there may be no ledger to ask. Nobody is ready at any moment of it."""
    profile, since = stage.scenario.profile, time.monotonic()
    ready: set[str] = set()

    def over() -> bool:
        ready.update(each.name for each in relays if each.get("/readyz")[0] == 200)
        return time.monotonic() - since > (profile.window_s or 0.0)

    wait_until(over, timeout_s=settle_timeout_s(profile), what="the window to end", poll_s=0.3)
    stage.judge.expect(not ready, f"{sorted(ready)} said that they are ready while the disk was full")


def _requests(scenario: Scenario) -> dict[str, int]:
    return {name: len(place.book.requests()) for name, place in scenario.providers.items()}


def _use_up_the_wal(server: SmallServer, *, timeout_s: float) -> None:
    """Other people's writes, until the server cannot go on: what PostgreSQL does without room for WAL is to stop."""

    def stopped() -> bool:
        with suppress(psycopg.Error), psycopg.connect(server.dsn(), autocommit=True, connect_timeout=2) as owner:
            while True:
                owner.execute("select pg_logical_emit_message(false, 'drill', repeat('x', 1000000))")
        return not server.running

    wait_until(stopped, timeout_s=timeout_s, what="the server to stop for want of WAL", poll_s=0.2)
