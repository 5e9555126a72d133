"""The reconciler as a process: real relay, real ledger, and providers that keep their own books.

The book is the proof: how often a request arrived, and how many effects an action had.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from outbox_relay.trial.breaks import rights_revoked
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HOLDING_PROFILE, HttpProgram, Profile, wait_until
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import SECRET, Scenario, Standing

SetStage = Callable[..., Scenario]
EACH = 5
"""Actions per kind of trouble; all of a test share one wait."""
PATIENT = Profile("patient", deadline_s=5, lease_s=8, sweep_s=0.25, shortens_contracts=True)
"""For what holds requests on purpose."""


def keys(name: str, count: int = EACH) -> list[str]:
    return [f"{name}/{number:02}" for number in range(count)]


def make_unknown(stage: Scenario, provider: str, troubles: dict[Fault, list[str]]) -> None:
    """Actions whose first attempt ends in doubt, all at once: for a relay that has not started yet, or is idle.

    One insert, because troubles one after the other would open the relay's breaker and wait for its probes.
    """
    for fault, names in troubles.items():
        for name in names:
            stage.providers[provider].spoil(fault, key=name, nth=1)
    stage.add(provider, [name for names in troubles.values() for name in names])


def insert(stage: Scenario, provider: str, names: list[str], *, deliver_in_s: float) -> None:
    """Actions with a deadline, under the agent's role."""
    sample = sample_of(provider)
    with psycopg.connect(stage.ledger.dsn("agent")) as connection:
        for key in names:
            connection.execute(
                "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload, deliver_by)"
                " values (%s, %s, %s, %s, clock_timestamp() + %s * interval '1 s')",
                [sample.provider, sample.operation, key, json.dumps(sample.worded(key)), deliver_in_s],
            )


def wait_unknown(stage: Scenario, count: int) -> None:
    stage.wait_for_count(
        count, "delivery_state = 'delivery_unknown'", timeout_s=20, what=f"{count} actions to be unknown"
    )


def requests_of(stage: Scenario, provider: str, key: str) -> int:
    return len(stage.providers[provider].book.requests(key))


def effects_of(stage: Scenario, provider: str, key: str) -> int:
    return len(stage.providers[provider].book.effects(key))


def review_of(stage: Scenario, key: str) -> tuple[str, str, str, str, bool]:
    """Reason, owner, what is missing, next step, and whether it is due in the future, of the open review."""
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        row = connection.execute(
            "select r.reason, r.owner, r.missing, r.next_step, r.due_at > clock_timestamp() from outbox.reviews r"
            " join outbox.outbound_actions a using (action_id) where a.idempotency_key = %s and r.closed_at is null",
            [key],
        ).fetchone()
    assert row is not None, f"{key} has no open review"
    return row


def series(program: HttpProgram, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(value for sample, value in program.metrics().items() if sample.partition("{")[0] == name)


def post_by_hand(url: str, text: str) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=json.dumps({"body": text}).encode(), headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert answer.status == 201


def confirmed(standing: Standing) -> bool:
    return standing.delivery_state in ("delivery_confirmed", "reconciled_confirmed")


# ---- A lost answer is settled by evidence or by a safe replay -------------------------------------------------------


def test_lost_answers_end_in_one_effect_and_one_confirmed_delivery_without_a_loop(scenario: SetStage) -> None:
    stage = scenario("resend", "github", "stripe")
    troubles = (
        Fault.ACCEPT_THEN_DROP,
        Fault.DROP_BEFORE_RECEIPT,
        Fault.SERVER_ERROR_AFTER_EFFECT,
        Fault.GARBAGE,
        Fault.HALF_ANSWER,
    )
    for provider in ("resend", "github"):
        make_unknown(stage, provider, {fault: keys(f"{provider}/{fault}") for fault in troubles})
    make_unknown(stage, "stripe", {Fault.ACCEPT_THEN_DROP: keys("stripe/accepted", 1)})
    reconciler = stage.start_reconciler()
    stage.start_relay()
    stage.wait_settled(timeout_s=60)
    standings = stage.standings()
    assert [each for each in standings if not confirmed(each) or each.in_review] == []
    for provider in ("resend", "github"):
        for fault in troubles:
            for key in keys(f"{provider}/{fault}"):
                assert effects_of(stage, provider, key) == 1, key
                assert requests_of(stage, provider, key) <= 2, key
    assert not stage.providers["stripe"].book.duplicates()
    found = [each for each in standings if each.key.startswith("github/accept_then_drop")]
    assert {(each.resolution, each.attempts) for each in found} == {("lookup", 1)}
    replayed = [each for each in standings if each.key.startswith("resend/")]
    assert {(each.resolution, each.attempts) for each in replayed} == {("replay", 2)}
    assert series(reconciler, "outbox_reconciliations_total") >= len(standings)
    assert reconciler.terminate() == 0


def test_each_replay_answer_has_its_own_meaning(scenario: SetStage) -> None:
    stage = scenario("resend")
    resend = stage.providers["resend"]
    later = {
        "in_progress": (Fault.IN_PROGRESS, 2),
        "mismatch": (Fault.MISMATCH, None),
        "refused": (Fault.REFUSE, None),
        "unavailable": (Fault.SERVER_ERROR, 3),
    }
    for name, (fault, times) in later.items():
        for key in keys(name):
            resend.spoil(fault, key=key, times=times)
    lost = [key for name in later for key in keys(name)]
    make_unknown(stage, "resend", {Fault.ACCEPT_THEN_DROP: lost, Fault.SERVER_ERROR_CACHED: keys("cached")})
    stage.start_reconciler()
    stage.start_relay()
    stage.wait_settled(timeout_s=60)
    settled = [*stage.standings("in_progress"), *stage.standings("unavailable")]
    assert {each.delivery_state for each in settled} == {"reconciled_confirmed"}
    expected = {"mismatch": "key_mismatch", "refused": "replay_refused", "cached": "replayed_server_error"}
    reasons = {key: review_of(stage, key)[0] for name in expected for key in keys(name)}
    assert reasons == {key: reason for name, reason in expected.items() for key in keys(name)}
    asked = {key: requests_of(stage, "resend", key) for key in reasons}
    assert set(asked.values()) == {2}, "an answer that only repeats itself is not asked for again"
    assert not resend.book.duplicates()
    assert not resend.book.variants(), "every attempt had the same key, bytes, URL and account"


def test_review_carries_owner_due_time_missing_evidence_and_next_step(scenario: SetStage) -> None:
    stage = scenario("resend")
    stage.start_reconciler()
    stage.start_relay()
    stage.providers["resend"].spoil(Fault.MISMATCH, key="deploy:1", times=None)
    make_unknown(stage, "resend", {Fault.ACCEPT_THEN_DROP: ["deploy:1"]})
    stage.wait_settled(timeout_s=20)
    reason, owner, missing, next_step, due_later = review_of(stage, "deploy:1")
    assert (reason, owner, due_later) == ("key_mismatch", "trial-oncall", True)
    assert "another body" in missing
    assert "new key" in next_step


# ---- After a cancel request or the deadline: only lookups -----------------------------------------------------------


def test_cancelled_or_late_unknowns_are_looked_up_and_never_sent_again(scenario: SetStage) -> None:
    stage = scenario("resend", "github")
    for provider in ("resend", "github"):
        for key in keys(f"{provider}/late"):
            stage.providers[provider].spoil(Fault.DROP_BEFORE_RECEIPT, key=key, nth=1)
        insert(stage, provider, keys(f"{provider}/late"), deliver_in_s=6)
        cancelled, found = keys(f"{provider}/cancel"), keys(f"{provider}/found")
        make_unknown(stage, provider, {Fault.DROP_BEFORE_RECEIPT: cancelled, Fault.ACCEPT_THEN_DROP: found})
    stage.start_relay()
    wait_unknown(stage, 6 * EACH)
    with psycopg.connect(stage.ledger.dsn("agent"), autocommit=True) as agent:
        for provider in ("resend", "github"):
            for key in (*keys(f"{provider}/cancel"), *keys(f"{provider}/found")):
                agent.execute("select outbox.cancel(%s)", [key])
        wait_until(
            lambda: stage.count("deliver_by < clock_timestamp()") == 2 * EACH, timeout_s=10, what="deadlines to pass"
        )
    stage.start_reconciler()
    stage.wait_settled(timeout_s=60)
    for provider, name, expected in (
        ("github", "cancel", {("cancelled", "not_sent")}),
        ("github", "late", {("expired", "not_sent")}),
        ("github", "found", {("dispatch_finished", "reconciled_confirmed")}),
        ("resend", "cancel", {("dispatch_finished", "delivery_unknown")}),
        ("resend", "late", {("dispatch_finished", "delivery_unknown")}),
        ("resend", "found", {("dispatch_finished", "delivery_unknown")}),
    ):
        standings = stage.standings(f"{provider}/{name}")
        assert {(each.execution_state, each.delivery_state) for each in standings} == expected, (provider, name)
        assert {each.attempts for each in standings} == {1}
    assert {review_of(stage, key)[0] for key in keys("resend/cancel")} == {"cancel_requested"}
    assert {review_of(stage, key)[0] for key in keys("resend/late")} == {"deadline_passed"}


# ---- Lookups that cannot be trusted ---------------------------------------------------------------------------------


def test_lookup_that_fails_lags_or_pages_is_never_taken_for_absence(scenario: SetStage) -> None:
    stage = scenario("github")
    github = stage.providers["github"]
    github.change(page_size=3)
    stage.add("github", keys("crowd", 12))
    make_unknown(stage, "github", {Fault.ACCEPT_THEN_DROP: keys("paged", 2)})
    stage.start_relay()
    wait_unknown(stage, 2)
    # The record is down for the first answers, then it cuts off, then it lies: garbage with a 200.
    github.spoil(Fault.SERVER_ERROR, kind="lookup", times=3)
    github.spoil(Fault.HALF_ANSWER, kind="lookup", times=1)
    github.spoil(Fault.GARBAGE, kind="lookup", times=1)
    stage.start_reconciler()
    stage.wait_settled(timeout_s=60)
    found = stage.standings("paged")
    assert {(each.delivery_state, each.resolution) for each in found} == {("reconciled_confirmed", "lookup")}
    assert [effects_of(stage, "github", key) for key in keys("paged", 2)] == [1] * 2
    assert [requests_of(stage, "github", key) for key in keys("paged", 2)] == [1] * 2


def test_two_matches_are_confirmed_and_put_before_a_person(scenario: SetStage) -> None:
    stage = scenario("github")
    github = stage.providers["github"]
    make_unknown(stage, "github", {Fault.ACCEPT_THEN_DROP: ["deploy:1"]})
    stage.start_relay()
    wait_unknown(stage, 1)
    # Somebody posted the same text by hand, mark included.
    post_by_hand(f"{github.url}/repos/example/shop/issues/42/comments", "deploy:1\n\n<!-- outbox-relay deploy:1 -->")
    stage.start_reconciler()
    stage.wait_for_count(1, "duplicate_suspected", timeout_s=20, what="the duplicate to be surfaced")
    (standing,) = stage.standings()
    assert standing.delivery_state == "reconciled_confirmed"
    assert review_of(stage, "deploy:1")[0] == "duplicate_suspected"


# ---- Claims ---------------------------------------------------------------------------------------------------------


def test_two_reconcilers_share_the_work_and_replay_each_unknown_once(scenario: SetStage) -> None:
    stage = scenario("resend")
    names = keys("shared", 40)
    make_unknown(stage, "resend", {Fault.ACCEPT_THEN_DROP: names})
    stage.start_relay()
    wait_unknown(stage, len(names))
    both = [stage.start_reconciler(name) for name in ("reconciler-1", "reconciler-2")]
    stage.wait_settled(timeout_s=60)
    assert {each.delivery_state for each in stage.standings()} == {"reconciled_confirmed"}
    assert [requests_of(stage, "resend", key) for key in names] == [2] * len(names)
    assert [reconciler.terminate() for reconciler in both] == [0, 0]


def reconciler_in_mid_replay(stage: Scenario) -> HttpProgram:
    """A reconciler whose replay was accepted, with the answer held back."""
    resend = stage.providers["resend"]
    resend.spoil(Fault.ACCEPT_THEN_HANG, key="deploy:1", nth=2)
    make_unknown(stage, "resend", {Fault.DROP_BEFORE_RECEIPT: ["deploy:1"]})
    stage.start_relay()
    wait_unknown(stage, 1)
    reconciler = stage.start_reconciler("reconciler-1")
    wait_until(lambda: resend.announced("accepted"), timeout_s=20, what="the replay to be accepted")
    return reconciler


def test_killed_in_mid_replay_leaves_it_unknown_and_another_one_settles_it(scenario: SetStage) -> None:
    stage = scenario("resend", profile=HOLDING_PROFILE)
    reconciler_in_mid_replay(stage).kill()
    stage.providers["resend"].release("drop")
    (standing,) = stage.standings()
    assert (standing.delivery_state, standing.attempts) == ("delivery_unknown", 2)
    stage.start_reconciler("reconciler-2")
    stage.wait_settled(timeout_s=60)
    (standing,) = stage.standings()
    assert standing.delivery_state == "reconciled_confirmed"
    assert effects_of(stage, "resend", "deploy:1") == 1
    # The dropped first one is not in the book; the replay that was killed and the one that settled it are.
    assert requests_of(stage, "resend", "deploy:1") == 2


def test_frozen_in_mid_replay_past_its_lease_cannot_change_what_another_one_settled(scenario: SetStage) -> None:
    stage = scenario("resend", profile=HOLDING_PROFILE)
    frozen = reconciler_in_mid_replay(stage)
    frozen.freeze()
    stage.start_reconciler("reconciler-2")
    stage.wait_settled(timeout_s=60)
    (settled,) = stage.standings()
    stage.providers["resend"].release("answer")
    frozen.thaw()
    frozen.wait_for("claim_lost")
    (standing,) = stage.standings()
    assert standing == settled
    assert (standing.delivery_state, standing.duplicate_suspected) == ("reconciled_confirmed", False)
    assert effects_of(stage, "resend", "deploy:1") == 1


def test_decision_during_a_replay_fences_the_reconciler_and_its_acceptance_is_kept(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    resend = stage.providers["resend"]
    stage.start_relay()
    resend.spoil(Fault.ACCEPT_THEN_HANG, key="deploy:1", nth=2)
    make_unknown(stage, "resend", {Fault.DROP_BEFORE_RECEIPT: ["deploy:1"]})
    wait_unknown(stage, 1)
    with psycopg.connect(stage.ledger.dsn("owner"), autocommit=True) as owner:
        row = owner.execute("select action_id from outbox.outbound_actions").fetchone()
        assert row is not None
        owner.execute("select outbox.open_review(%s, 'asked_by_test', 'trial-oncall', 'm', 'n', 60000)", [row[0]])
        stage.start_reconciler()
        wait_until(lambda: resend.announced("accepted"), timeout_s=20, what="the replay to be accepted")
        owner.execute("select outbox.decide_review(review_id, 'abandoned', 'closed by test') from outbox.reviews")
    resend.release("answer")
    stage.wait_for_count(1, "duplicate_suspected", timeout_s=20, what="the contradiction to be surfaced")
    (standing,) = stage.standings()
    assert standing.delivery_state == "abandoned"
    assert standing.in_review
    assert review_of(stage, "deploy:1")[0] == "duplicate_suspected"


def test_stopping_finishes_the_replay_under_way_and_stores_what_it_learned(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    resend = stage.providers["resend"]
    stage.start_relay()
    resend.spoil(Fault.ACCEPT_THEN_HANG, key="deploy:1", nth=2)
    make_unknown(stage, "resend", {Fault.DROP_BEFORE_RECEIPT: ["deploy:1"]})
    reconciler = stage.start_reconciler()
    wait_until(lambda: resend.announced("accepted"), timeout_s=20, what="the replay to be accepted")
    os.kill(reconciler.pid, 15)
    reconciler.wait_for("stopping")
    resend.release("answer")
    wait_until(lambda: reconciler.exit_code is not None, timeout_s=20, what="the reconciler to end")
    assert reconciler.exit_code == 0
    (standing,) = stage.standings()
    assert standing.delivery_state == "reconciled_confirmed"


def test_answer_is_stored_though_the_ledger_went_away_during_the_replay(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    resend = stage.providers["resend"]
    resend.spoil(Fault.ACCEPT_THEN_HANG, key="deploy:1", nth=2)
    make_unknown(stage, "resend", {Fault.DROP_BEFORE_RECEIPT: ["deploy:1"]})
    stage.start_relay()
    stage.start_reconciler()
    wait_until(lambda: resend.announced("accepted"), timeout_s=20, what="the replay to be accepted")
    with stage.locked_queue("deploy:1"):
        resend.release("answer")
        wait_until(lambda: stage.waiting_for_locks("reconciler") > 0, timeout_s=20, what="the write to hang")
        assert stage.end_sessions("reconciler") > 0
    stage.wait_settled(timeout_s=30)
    (standing,) = stage.standings()
    assert (standing.delivery_state, standing.attempts) == ("reconciled_confirmed", 2)
    assert effects_of(stage, "resend", "deploy:1") == 1


def test_nothing_more_is_replayed_while_conclusions_cannot_be_stored(scenario: SetStage) -> None:
    """Cases that were claimed before the trouble have their turn in it."""
    stage = scenario("resend", profile=PATIENT)
    resend, names = stage.providers["resend"], keys("deploy", 3)
    make_unknown(stage, "resend", {Fault.DROP_BEFORE_RECEIPT: names})
    relay = stage.start_relay()
    wait_unknown(stage, len(names))
    relay.terminate()
    # Turns so far apart that the first replay's answer is known, and could not be stored, before the second one's turn.
    file = stage.folder / "providers.yaml"
    file.write_text(file.read_text().replace("review_owner:", "rate_per_s: 0.5\n  review_owner:"))
    resend.spoil(Fault.ACCEPT_THEN_HANG, times=None, nth=2)
    reconciler = stage.start_reconciler()
    wait_until(lambda: resend.announced("accepted"), timeout_s=45, what="the first replay to be accepted")
    with rights_revoked(stage):
        attempts = sum(each.attempts for each in stage.standings())
        resend.release("answer")
        reconciler.wait_for("conclusions_not_storable")
        wait_until(lambda: _seconds_since_the_last_replay(stage) > 6, timeout_s=45, what="every turn to have come")
        assert sum(each.attempts for each in stage.standings()) == attempts
    stage.wait_settled(timeout_s=60)
    assert {each.delivery_state for each in stage.standings()} == {"reconciled_confirmed"}
    assert not resend.book.duplicates()


def test_nothing_is_claimed_or_replayed_by_a_reconciler_that_may_not_store(scenario: SetStage) -> None:
    stage = scenario("resend")
    make_unknown(stage, "resend", {Fault.DROP_BEFORE_RECEIPT: keys("deploy", 3)})
    relay = stage.start_relay()
    wait_unknown(stage, 3)
    relay.terminate()
    with rights_revoked(stage):
        reconciler = stage.begin_reconciler()
        reconciler.wait_for("ledger_unavailable")
        wait_until(lambda: series(reconciler, "outbox_ledger_failures_total") > 1, timeout_s=45, what="it to try again")
        assert reconciler.get("/readyz")[0] == 503
        assert {each.attempts for each in stage.standings()} == {1}
        assert not stage.providers["resend"].book.requests()
    stage.wait_settled(timeout_s=60)
    assert {(each.delivery_state, each.attempts) for each in stage.standings()} == {("reconciled_confirmed", 2)}


def _seconds_since_the_last_replay(stage: Scenario) -> float:
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        row = connection.execute(
            "select extract(epoch from clock_timestamp() - max(last_attempt_at)) from outbox.outbound_actions"
        ).fetchone()
    return float(row[0]) if row else 0.0


# ---- Sweeps, metrics, exit codes ------------------------------------------------------------------------------------


def test_expired_claims_and_deadlines_are_swept_without_a_relay(scenario: SetStage) -> None:
    stage = scenario("resend", "github")
    github = stage.providers["github"]
    relay = stage.start_relay()
    github.spoil(Fault.ACCEPT_THEN_HANG, key="killed/00")
    stage.add("github", ["killed/00"])
    wait_until(lambda: github.announced("accepted"), timeout_s=20, what="the request to be accepted")
    relay.kill()
    github.release("drop")
    insert(stage, "resend", ["late/00"], deliver_in_s=1)
    reconciler = stage.start_reconciler()
    stage.wait_settled(timeout_s=30)
    (killed,), (late,) = stage.standings("killed"), stage.standings("late")
    assert (killed.delivery_state, killed.resolution) == ("reconciled_confirmed", "lookup")
    assert (late.execution_state, late.delivery_state) == ("expired", "not_sent")
    assert effects_of(stage, "github", "killed/00") == 1
    assert series(reconciler, "outbox_swept_total") == 2


def test_created_equals_the_sum_of_all_states_in_every_scrape(scenario: SetStage) -> None:
    stage = scenario("resend", "github")
    reconciler = stage.start_reconciler()
    stage.start_relay()
    for batch in range(5):
        stage.add("resend", keys(f"resend/{batch}", 20))
        stage.add("github", keys(f"github/{batch}", 20))
        metrics = reconciler.metrics()
        for provider in ("resend", "github"):
            created = metrics.get(f'outbox_actions_created_total{{provider="{provider}"}}', 0.0)
            states = [
                value
                for sample, value in metrics.items()
                if sample.startswith("outbox_actions{") and f'provider="{provider}"' in sample
            ]
            assert created == sum(states)
    wait_until(
        lambda: series(reconciler, "outbox_actions_created_total") == 200, timeout_s=20, what="200 to be counted"
    )


@pytest.mark.parametrize(
    ("environ", "code", "says"),
    [
        ({}, 2, "OUTBOX_PROVIDERS_FILE"),
        ({"OUTBOX_LEASE_S": "1", "OUTBOX_PROVIDER_DEADLINE_S": "10"}, 2, "OUTBOX_LEASE_S"),
    ],
    ids=["nothing set", "lease shorter than deadline"],
)
def test_refuses_to_start_with_a_hint_and_the_documented_exit_code(
    environ: dict[str, str], code: int, says: str
) -> None:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "reconciler"],
        env=inherited | environ,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == code
    assert says in done.stdout


def test_refuses_a_ledger_of_another_environment(scenario: SetStage) -> None:
    stage = scenario("resend")
    with pytest.raises(Exception, match="ended with 6"):
        stage.start_reconciler(OUTBOX_ENVIRONMENT="production")
