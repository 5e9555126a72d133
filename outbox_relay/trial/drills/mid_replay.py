"""Drill 11: a reconciler is killed, or frozen past its lease, in mid-replay, and an operator decides meanwhile.

The replays are accepted and their answers held; of the frozen one the acceptances are parsed and their writes held on
the way to the database. A decision fences the resolver: nothing that it knows or does afterwards changes the state.
What it learned is kept, used where the action is open again, and surfaced where it contradicts a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import psycopg

from outbox_relay.trial.book import EffectLine
from outbox_relay.trial.declared import DeclaredAccount
from outbox_relay.trial.drill import DrillResult, Judge, OpenScenario, batches, keys, settle_timeout_s
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.place import SimulatedProvider
from outbox_relay.trial.processes import HttpProgram, Profile, wait_for_none_left, wait_until
from outbox_relay.trial.scenario import SECRET_VARIABLE, Scenario, Standing
from outbox_relay.trial.tunnel import Tunnel

NAME = "mid-replay"
PROVIDERS = ("resend", "pagerduty")
"""Types A and C: where there is a replay."""
PLACES = 8
"""Replays that a reconciler has under way at one account."""
ACCOUNTS = ("default", "second", "third")
BATCH = PLACES * len(ACCOUNTS)
DEADLINE_S = 6.0
KILLED = ("confirmed", "resend")
"""What an operator decides who has looked the action up, or who has found nothing."""
FROZEN = ("abandoned", "confirmed", "resend")


def run(open_scenario: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
    """Run it at every provider at once, `runs` actions each for killed and for frozen reconcilers."""
    # All replays of a batch must be held before the first one's deadline ends.
    patient = replace(
        profile, deadline_s=max(profile.deadline_s, DEADLINE_S), lease_s=max(profile.lease_s, DEADLINE_S + 3)
    )
    with open_scenario(PROVIDERS, patient) as scenario:
        judge = Judge(scenario, seed)
        _declare_accounts(scenario)
        for number, size in batches(runs, BATCH):
            _kill(scenario, f"batch{number}", size)
            _freeze(scenario, judge, f"batch{number}", size)
        _judge(judge)
        return [
            result
            for how in ("killed", "frozen")
            for result in judge.results(f"{NAME} {how}", {_prefix(how, each): each for each in PROVIDERS})
        ]


def _declare_accounts(scenario: Scenario) -> None:
    """Several of each provider, because a reconciler has few replays under way at one."""
    scenario.declare(
        [
            DeclaredAccount(name, place.url, SECRET_VARIABLE, account, identity=f"{name}-{account}")
            for name, place in scenario.providers.items()
            for account in ACCOUNTS
        ]
    )


def _kill(scenario: Scenario, batch: str, size: int) -> None:
    doomed = _in_mid_replay(scenario, "killed", batch, size, scenario.ledger.dsn("reconciler"))
    doomed.freeze()
    for place in scenario.providers.values():
        place.release("drop")
    doomed.kill()
    _decide(scenario, "killed", batch, KILLED)


def _freeze(scenario: Scenario, judge: Judge, batch: str, size: int) -> None:
    late = scenario.late_acceptances("replay") + size * len(PROVIDERS)
    with Tunnel(scenario.ledger.dsn("reconciler")) as tunnel:
        frozen = _in_mid_replay(scenario, "frozen", batch, size, tunnel.dsn)
        tunnel.hold()
        for place in scenario.providers.values():
            place.release("answer")
        frozen.wait_for("attempt", count=size * len(PROVIDERS), finding="accepted")
        frozen.freeze()
        survivor = scenario.start_reconciler(f"survivor-{batch}")
        _decide(scenario, "frozen", batch, FROZEN)
        decided = _states(scenario, batch)
        _wait_leases_over(scenario, batch)
        judge.expect(_states(scenario, batch) == decided, f"something was done after the decisions about {batch}")
        tunnel.let_go()
        frozen.thaw()
        wait_for_none_left(
            lambda: max(0, late - scenario.late_acceptances("replay")),
            patience_s=_soon_s(scenario),
            what=f"{late} late acceptances to be kept",
            poll_s=0.1,
        )
        _wait_closed(scenario)
        for each in (frozen, survivor):
            each.terminate()


def _in_mid_replay(scenario: Scenario, how: str, batch: str, size: int, dsn: str) -> HttpProgram:
    """A reconciler that has all of a batch under way: accepted by the provider, and not answered."""
    before = {name: len(place.announced("accepted")) for name, place in scenario.providers.items()}
    started = scenario.start_reconciler(f"{how}-{batch}", OUTBOX_DATABASE_URL=dsn)
    relay = scenario.start_relay(f"relay-{how}-{batch}")
    for provider, place in scenario.providers.items():
        prefix = f"{_prefix(how, provider)}{batch}/"
        place.spoil(Fault.DROP_BEFORE_RECEIPT, times=None, nth=1, key_prefix=prefix)
        place.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=2, key_prefix=prefix)
        wanted = keys(prefix, size)
        for number, account in enumerate(ACCOUNTS):
            scenario.add(provider, wanted[number * PLACES : (number + 1) * PLACES], account=account)
    for provider, place in scenario.providers.items():
        place.program.wait_for("accepted", count=before[provider] + size, fault=Fault.ACCEPT_THEN_HANG.value)
    relay.terminate()
    return started


def _decide(scenario: Scenario, how: str, batch: str, decisions: Sequence[str]) -> None:
    """Put every action of a batch before an operator, who decides: the decisions in turn."""
    references = {ref: line.provider_id for each in scenario.providers.values() for ref, line in _effects(each).items()}
    with (
        psycopg.connect(scenario.ledger.dsn("owner"), autocommit=True) as owner,
        psycopg.connect(scenario.ledger.dsn("operator"), autocommit=True) as operator,
    ):
        for each in _batch(scenario, how, batch):
            owner.execute(
                "select outbox.open_review(%s, 'unresolved_too_long', 'trial-oncall', '-', '-', 60000)",
                [each.action_id],
            )
            review = owner.execute(
                "select review_id from outbox.reviews where action_id = %s and closed_at is null", [each.action_id]
            ).fetchone()
            decision = _decision(each, decisions)
            reference = references[each.key] if decision == "confirmed" else None
            operator.execute(
                "select outbox.decide_review(%s, %s, 'looked at the provider', %s)",
                [review[0] if review else None, decision, reference],
            )


def _wait_leases_over(scenario: Scenario, batch: str) -> None:
    """The frozen ones are past their leases, in the database's time."""
    profile = scenario.profile
    wait_until(
        lambda: (
            not scenario.count(
                "a.idempotency_key like %s and a.last_attempt_at + %s * interval '1 s' > clock_timestamp()",
                f"{NAME}/frozen/%/{batch}/%",
                profile.lease_s,
            )
        ),
        timeout_s=profile.lease_s + settle_timeout_s(profile),
        what="the leases to run out",
        poll_s=0.2,
    )


def _wait_closed(scenario: Scenario) -> None:
    """Everything is settled, also what an operator sent again. Nobody but a relay does that, and one is started."""
    relay = scenario.start_relay("closing")
    scenario.wait_settled(timeout_s=_soon_s(scenario))
    relay.terminate()


def _soon_s(scenario: Scenario) -> float:
    """Until the last attempt can no longer be on its way, and may be made again; and a loaded machine's time."""
    return scenario.profile.lease_s + scenario.profile.deadline_s + 60


def _judge(judge: Judge) -> None:
    scenario = judge.scenario
    for provider, place in scenario.providers.items():
        counts = place.book.effects_per_key()
        requests = Counter(line.ref for line in place.book.requests())
        for how, decisions in (("killed", KILLED), ("frozen", FROZEN)):
            for each in scenario.standings(_prefix(how, provider)):
                decision = _decision(each, decisions)
                judge.expect(counts.get(each.key) == 1, f"one effect: {each}")
                judge.expect(_ended_well(how, decision, each), f"{how}, then {decision}: {each}")
                resent = how == "killed" and decision == "resend"
                judge.expect(requests[each.key] == 1 + resent, f"{requests[each.key]} requests: {each}")
    judge.expect(scenario.unused_acceptances() == 0, "an acceptance was kept and never used")


def _ended_well(how: str, decision: str, each: Standing) -> bool:
    suspected = decision == "abandoned"
    state = {
        "abandoned": ("abandoned", "operator"),
        "confirmed": ("reconciled_confirmed", "operator"),
        # Of the killed nobody knows anything: it is sent again, under the same key. The frozen ones knew.
        "resend": ("delivery_confirmed", "response") if how == "killed" else ("reconciled_confirmed", "replay"),
    }[decision]
    found = (each.delivery_state, each.resolution)
    return found == state and each.duplicate_suspected == suspected and each.in_review == suspected


def _decision(each: Standing, decisions: Sequence[str]) -> str:
    return decisions[int(each.key.rpartition("/")[2]) % len(decisions)]


def _effects(place: SimulatedProvider) -> dict[str, EffectLine]:
    return {line.ref: line for line in place.book.effects()}


def _batch(scenario: Scenario, how: str, batch: str) -> list[Standing]:
    return [each for provider in PROVIDERS for each in scenario.standings(f"{_prefix(how, provider)}{batch}/")]


def _states(scenario: Scenario, batch: str) -> list[Standing]:
    return _batch(scenario, "frozen", batch)


def _prefix(how: str, provider: str) -> str:
    return f"{NAME}/{how}/{provider}/"
