"""The relay as a process, on the real ledger and against a provider with its own book. Without Kafka."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from outbox_relay.ledger.pool import open_ledger
from outbox_relay.providers.accounts import load_accounts
from outbox_relay.providers.registry import load_contracts
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.place import SimulatedProvider
from outbox_relay.trial.processes import HttpProgram, Profile, start_python, wait_until
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.scenario import SECRET, SECRET_VARIABLE, Scenario

SetStage = Callable[..., Scenario]
PATIENT = Profile("patient", deadline_s=5, lease_s=10, sweep_s=0.25, shortens_contracts=True)
"""A loaded machine must not make unknowns, and some tests hold requests on purpose."""
NO_BROKER = {"OUTBOX_WAKEUPS": "kafka", "OUTBOX_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


def keys(count: int, name: str = "deploy") -> list[str]:
    return [f"{name}:{number:04}" for number in range(count)]


def wait_confirmed(stage: Scenario, count: int, *, timeout_s: float = 20) -> None:
    """Wait for acceptances in the ledger."""
    what = f"{count} acceptances"
    stage.wait_for_count(count, "delivery_state = 'delivery_confirmed'", timeout_s=timeout_s, what=what)


def wait_state(stage: Scenario, key: str, state: str, *, timeout_s: float = 20) -> None:
    """Wait until one action is in a state, execution or delivery."""
    condition = "idempotency_key = %s and %s in (execution_state, delivery_state)"
    stage.wait_for_count(1, condition, key, state, timeout_s=timeout_s, what=f"{key} to be {state}")


def wait_held(provider: SimulatedProvider, event: str, count: int = 1) -> None:
    """Wait until the provider holds so many requests."""
    wait_until(lambda: len(provider.announced(event)) >= count, timeout_s=20, what=f"{count} x {event}")


def insert(stage: Scenario, provider: str, key: str, **labels: object) -> None:
    """One action with labels, under the agent's role."""
    sample = sample_of(provider)
    row = {
        "provider": sample.provider,
        "operation": sample.operation,
        "idempotency_key": key,
        "payload": json.dumps(sample.worded(key)),
        **labels,
    }
    with psycopg.connect(stage.ledger.dsn("agent")) as connection:
        columns, values = ", ".join(row), ", ".join(["%s"] * len(row))
        connection.execute(f"insert into outbox.outbound_actions ({columns}) values ({values})", list(row.values()))


def declare(stage: Scenario) -> None:
    """What `outbox providers apply` does."""
    contracts = load_contracts(stage.folder / "contracts")
    accounts = load_accounts(stage.folder / "providers.yaml", contracts, {SECRET_VARIABLE: SECRET})

    async def apply() -> None:
        async with open_ledger(stage.ledger.dsn("owner"), environment="test", application="test", max_size=1) as opened:
            await opened.accounts.apply([row for account in accounts for row in account.rows()])

    asyncio.run(apply())


def readiness(relay: HttpProgram) -> tuple[int, dict[str, dict[str, str]]]:
    """Status of /readyz and its checks."""
    status, text = relay.get("/readyz")
    return status, json.loads(text)["checks"] if text.startswith("{") else {}


def series(relay: HttpProgram, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(value for sample, value in relay.metrics().items() if sample.partition("{")[0] == name)


# ---- What is sent -------------------------------------------------------------------------------------------------


def test_a_committed_action_is_sent_once_and_its_acceptance_written_back(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    relay = stage.start_relay()
    stage.add("resend", ["deploy:42:notify"])
    wait_confirmed(stage, 1)
    (effect,) = stage.providers["resend"].book.effects()
    (standing,) = stage.standings()
    assert standing.provider_id == effect.provider_id
    assert (standing.attempts, standing.resolution) == (1, "response")
    (line,) = relay.events("attempt")
    assert (line["finding"], line["action_id"]) == ("accepted", standing.action_id)
    assert relay.terminate() == 0


def test_what_was_rolled_back_is_never_sent(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    stage.start_relay()
    stage.add("resend", keys(5, "undone"), roll_back=True)
    stage.add("resend", keys(5, "done"))
    wait_confirmed(stage, 5)
    assert set(stage.providers["resend"].book.effects_per_key()) == set(keys(5, "done"))


def test_a_backlog_is_drained_by_two_relays_each_action_once(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    stage.add("resend", keys(400))
    relays = [stage.start_relay(name) for name in ("relay-1", "relay-2")]
    wait_confirmed(stage, 400, timeout_s=60)
    book = stage.providers["resend"].book
    assert len(book.requests()) == 400
    assert set(book.effects_per_key().values()) == {1}
    assert sum(series(relay, "outbox_claimed_total") for relay in relays) == 400
    assert [relay.terminate() for relay in relays] == [0, 0]


def test_a_refusal_is_final(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    stage.providers["resend"].spoil(Fault.REFUSE)
    stage.start_relay()
    stage.add("resend", ["deploy:1"])
    wait_state(stage, "deploy:1", "delivery_rejected")
    assert len(stage.providers["resend"].book.requests()) == 1


def test_a_lost_answer_is_unknown_and_not_sent_again(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    stage.providers["resend"].spoil(Fault.ACCEPT_THEN_DROP, key="deploy:1")
    stage.start_relay()
    stage.add("resend", ["deploy:1"])
    wait_state(stage, "deploy:1", "delivery_unknown")
    # Later ones go through and many sweeps pass: nothing touches the unknown one.
    stage.add("resend", keys(20, "later"))
    wait_confirmed(stage, 20)
    assert len(stage.providers["resend"].book.requests("deploy:1")) == 1


def test_a_throttled_account_waits_as_long_as_it_was_asked_to(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    stage.providers["resend"].spoil(Fault.THROTTLE, retry_after="1")
    relay = stage.start_relay()
    stage.add("resend", ["deploy:1"])
    wait_confirmed(stage, 1)
    first, second = relay.events("attempt")
    assert (first["finding"], second["finding"]) == ("no_effect", "accepted")
    (standing,) = stage.standings()
    assert standing.attempts == 2
    throttled, accepted = stage.providers["resend"].book.requests()
    assert seconds(accepted.at) - seconds(throttled.at) >= 1


def seconds(instant: str) -> float:
    """Seconds of the day of a timestamp in the book."""
    hours, minutes, rest = instant.rstrip("Z").partition("T")[2].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def test_a_provider_that_is_down_costs_no_action_and_no_hold(scenario: SetStage) -> None:
    """Connections are refused: provably nothing was sent, the breaker opens, and all is sent when it is back."""
    stage = scenario("resend", profile=PATIENT)
    provider = stage.providers["resend"]
    port = provider.program.port
    provider.program.kill()
    relay = stage.start_relay()
    stage.add("resend", keys(40))
    wait_until(lambda: series(relay, "outbox_provider_circuit_open") == 1, timeout_s=20, what="the breaker to open")
    with SimulatedProvider.start(
        "resend", folder=stage.folder, contracts_dir=stage.folder / "contracts", port=port, name="provider-back"
    ) as back:
        wait_confirmed(stage, 40, timeout_s=60)
        assert set(back.book.effects_per_key().values()) == {1}
    assert series(relay, "outbox_provider_circuit_open") == 0
    assert stage.count("execution_state = 'on_hold'") == 0


def test_an_action_is_not_sent_before_its_time_and_soon_after(scenario: SetStage) -> None:
    """No wake-up and no sweep helps here: only the question for the next due time."""
    stage = scenario("resend", profile=Profile("rare", deadline_s=5, lease_s=10, sweep_s=60, shortens_contracts=True))
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        (moment,) = connection.execute("select clock_timestamp() + interval '3 seconds'").fetchone() or (None,)
    insert(stage, "resend", "later:1", not_before=moment)
    stage.start_relay(**NO_BROKER)
    wait_confirmed(stage, 1)
    assert stage.count("first_attempt_at < %s", moment) == 0
    assert stage.count("first_attempt_at > %s::timestamptz + interval '10 seconds'", moment) == 0


def test_the_actions_of_one_ordering_key_go_in_order_and_without_waiting_for_a_sweep(scenario: SetStage) -> None:
    stage = scenario("resend", profile=Profile("rare", deadline_s=5, lease_s=10, sweep_s=60, shortens_contracts=True))
    for key in keys(10):
        insert(stage, "resend", key, ordering_key="ticket-7")
    stage.start_relay(**NO_BROKER)
    wait_confirmed(stage, 10)
    assert [line.ref for line in stage.providers["resend"].book.requests()] == keys(10)


def test_an_account_on_hold_sends_nothing_and_a_person_is_asked(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    with psycopg.connect(stage.ledger.dsn("owner")) as connection:
        connection.execute("update outbox.providers set mode = 'hold'")
    file = stage.folder / "providers.yaml"
    file.write_text(file.read_text().replace("mode: live", "mode: hold"))
    stage.start_relay()
    stage.add("resend", ["deploy:1"])
    wait_state(stage, "deploy:1", "on_hold")
    (standing,) = stage.standings()
    assert standing.in_review
    assert standing.attempts == 0
    assert stage.providers["resend"].book.requests() == []


def test_one_providers_trouble_does_not_slow_another(scenario: SetStage) -> None:
    stage = scenario("resend", "github", profile=PATIENT)
    stage.providers["github"].spoil(Fault.HANG, times=None)
    stage.start_relay(OUTBOX_SLOTS="8")
    stage.add("github", keys(30, "hanging"))
    wait_until(lambda: len(stage.providers["github"].book.requests()) == 8, timeout_s=20, what="a full account")
    stage.add("resend", keys(30, "quick"))
    wait_confirmed(stage, 30, timeout_s=4)
    assert len(stage.providers["github"].book.requests()) == 8, "never more in flight than slots"


# ---- Starting and stopping ----------------------------------------------------------------------------------------


def test_a_stop_finishes_what_is_in_flight_and_leaves_the_rest(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    provider = stage.providers["resend"]
    provider.spoil(Fault.ACCEPT_THEN_HANG, times=3)
    relay = stage.start_relay(OUTBOX_SLOTS="3")
    stage.add("resend", keys(10))
    wait_held(provider, "accepted", 3)
    relay._process.terminate()
    wait_until(lambda: bool(relay.events("stopping")), timeout_s=10, what="the stop")
    assert readiness(relay)[0] == 503
    assert relay.get("/livez")[0] == 200
    provider.release("answer")
    wait_until(lambda: relay.exit_code is not None, timeout_s=10, what="the end")
    assert relay.exit_code == 0
    assert stage.count("delivery_state = 'delivery_confirmed'") == 3
    assert stage.count("execution_state = 'action_created'") == 7
    assert len(provider.book.requests()) == 3


def test_a_second_signal_ends_it_at_once(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    provider = stage.providers["resend"]
    provider.spoil(Fault.HANG)
    relay = stage.start_relay()
    stage.add("resend", ["deploy:1"])
    wait_until(lambda: bool(provider.book.requests()), timeout_s=10, what="the request")
    relay._process.terminate()
    wait_until(lambda: bool(relay.events("stopping")), timeout_s=10, what="the stop")
    relay._process.terminate()
    wait_until(lambda: relay.exit_code is not None, timeout_s=2, what="the end")
    assert relay.exit_code == 143


def test_it_refuses_to_start_when_the_providers_file_and_the_ledger_differ(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    file = stage.folder / "providers.yaml"
    file.write_text(file.read_text().replace("trial-oncall", "somebody-else"))
    environ = {**stage.environ, "OUTBOX_DATABASE_URL": stage.ledger.dsn("relay")}
    with start_python("refusing", "outbox_relay", folder=stage.folder, env=environ) as relay:
        wait_until(lambda: relay.exit_code is not None, timeout_s=20, what="the refusal")
        assert relay.exit_code == 6
        (line,) = relay.events("cannot_run")
        assert "resend/default/emails.send differs in review_owner" in str(line["error"])
        assert "outbox providers apply" in str(line["hint"])


def test_accounts_declared_anew_end_a_running_relay_and_hold_nothing(scenario: SetStage) -> None:
    """A deployment declares the new contract before it replaces the old relays: their backlog must stay as it is."""
    stage = scenario("resend", profile=PATIENT)
    old = stage.start_relay("old")
    contract = stage.folder / "contracts" / "resend.yaml"
    contract.write_text(contract.read_text() + "# a new version\n")
    declare(stage)
    stage.add("resend", keys(20))
    wait_until(lambda: old.exit_code is not None, timeout_s=20, what="the old relay to end")
    assert old.exit_code == 6
    assert stage.count("execution_state = 'action_created' and attempt_count = 0") == 20
    assert stage.providers["resend"].book.requests() == []
    stage.start_relay("new")
    wait_confirmed(stage, 20)


def test_a_ledger_of_another_environment_is_refused(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    environ = {**stage.environ, "OUTBOX_DATABASE_URL": stage.ledger.dsn("relay"), "OUTBOX_ENVIRONMENT": "production"}
    with start_python("refusing", "outbox_relay", folder=stage.folder, env=environ) as relay:
        wait_until(lambda: relay.exit_code is not None, timeout_s=20, what="the refusal")
        assert relay.exit_code == 6


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("OUTBOX_LEASE_S", "0.5", "OUTBOX_LEASE_S must exceed"),
        ("OUTBOX_WAKEUPS", "kafka", "OUTBOX_KAFKA_BOOTSTRAP_SERVERS is not set"),
        ("OUTBOX_PROVIDERS_FILE", "/nowhere.yaml", "cannot be read"),
        ("OUTBOX_DATABASE_URL", "", "OUTBOX_DATABASE_URL is not set"),
    ],
)
def test_a_wrong_setting_ends_it_with_code_2_and_says_what_to_do(
    scenario: SetStage, setting: str, value: str, told: str
) -> None:
    stage = scenario("resend", profile=PATIENT)
    environ = {**stage.environ, "OUTBOX_DATABASE_URL": stage.ledger.dsn("relay"), setting: value}
    with start_python("refusing", "outbox_relay", folder=stage.folder, env=environ) as relay:
        wait_until(lambda: relay.exit_code is not None, timeout_s=20, what="the refusal")
        assert relay.exit_code == 2
        (line,) = relay.events("cannot_run")
        assert told in str(line["error"])
        assert line["hint"]


def test_it_waits_for_a_ledger_that_is_not_there_yet(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    environ = {**stage.environ, "OUTBOX_DATABASE_URL": "postgresql://relay:hunter2@127.0.0.1:1/nowhere"}
    with start_python("waiting", "outbox_relay", folder=stage.folder, env=environ) as relay:
        relay.wait_for("ledger_unavailable")
        status, checks = readiness(relay)
        assert (status, checks["ledger"]["status"]) == (503, "not_ready")
        assert checks["ledger"]["what_to_do"]
        assert relay.get("/livez")[0] == 200
        assert "hunter2" not in relay.tail(100)
        assert relay.terminate() == 0


# ---- When something is away ---------------------------------------------------------------------------------------


def test_without_a_broker_dispatch_goes_on_from_the_sweep_and_readiness_says_so(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    relay = stage.start_relay(**NO_BROKER)
    stage.add("resend", keys(5))
    wait_confirmed(stage, 5)
    status, checks = readiness(relay)
    assert (status, checks["kafka"]["status"]) == (200, "degraded")
    assert "sweep" in checks["kafka"]["detail"]
    assert relay.terminate() == 0


def test_while_outcomes_cannot_be_stored_nothing_is_claimed_and_none_is_lost(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    provider = stage.providers["resend"]
    provider.spoil(Fault.ACCEPT_THEN_HANG)
    relay = stage.start_relay()
    stage.add("resend", ["deploy:0000"])
    wait_held(provider, "accepted")
    with psycopg.connect(stage.ledger.dsn("owner"), autocommit=True) as owner:
        owner.execute("revoke execute on function outbox.record_outcomes(jsonb) from outbox_relay")
        provider.release("answer")
        wait_until(lambda: readiness(relay)[0] == 503, timeout_s=10, what="readiness to tell")
        assert "do not kill" in readiness(relay)[1]["outcomes"]["what_to_do"]
        stage.add("resend", keys(5, "meanwhile"))
        tries = series(relay, "outbox_ledger_failures_total")
        # It has gone on for a while, and had every chance to claim.
        wait_until(
            lambda: series(relay, "outbox_ledger_failures_total") >= tries + 3, timeout_s=45, what="more tries to store"
        )
        assert len(relay.events("outcomes_not_storable")) == 1
        assert stage.count("attempt_count > 0") == 1
        assert len(provider.book.requests()) == 1
        owner.execute("grant execute on function outbox.record_outcomes(jsonb) to outbox_relay")
    wait_confirmed(stage, 6)
    assert len(provider.book.requests()) == 6
    assert readiness(relay)[0] == 200


def test_a_ledger_that_takes_no_writes_gives_no_claims(scenario: SetStage) -> None:
    """As after a failover to a standby: reads work, and nothing may be sent that could not be stored."""
    stage = scenario("resend", profile=PATIENT)
    relay = stage.start_relay()
    with psycopg.connect(stage.ledger.dsn("owner"), autocommit=True) as owner:
        database = sql.Identifier(owner.info.dbname)
        setting = sql.SQL("alter role outbox_relay in database {} {} default_transaction_read_only {}")
        owner.execute(setting.format(database, sql.SQL("set"), sql.SQL("= on")))
        assert stage.end_sessions("relay")
        wait_until(lambda: readiness(relay)[0] == 503, timeout_s=10, what="readiness to tell")
        assert readiness(relay)[1]["ledger"]["what_to_do"]
        stage.add("resend", keys(3))
        owner.execute(setting.format(database, sql.SQL("reset"), sql.SQL("")))
        assert stage.count("attempt_count > 0") == 0
        stage.end_sessions("relay")
    wait_confirmed(stage, 3)
    assert relay.events("ledger_available_again")
    assert len(stage.providers["resend"].book.requests()) == 3


def test_cut_connections_lose_nothing_and_send_nothing_twice(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    relay = stage.start_relay(OUTBOX_SLOTS="16")
    stage.add("resend", keys(300))
    for share in (30, 90, 150, 210):
        wait_confirmed(stage, share)
        stage.end_sessions("relay")
    stage.wait_for_count(
        300, "execution_state = 'dispatch_finished'", timeout_s=60, what="every action to have its outcome"
    )
    assert stage.count("delivery_state <> 'delivery_confirmed'") == 0
    assert set(stage.providers["resend"].book.effects_per_key().values()) == {1}
    assert len(stage.providers["resend"].book.requests()) == 300
    assert relay.terminate() == 0


# ---- What it tells ------------------------------------------------------------------------------------------------


def test_the_counters_tell_what_happened(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    provider = stage.providers["resend"]
    provider.spoil(Fault.REFUSE, key="refused")
    provider.spoil(Fault.ACCEPT_THEN_DROP, key="lost")
    relay = stage.start_relay()
    stage.add("resend", [*keys(3), "refused", "lost"])
    stage.wait_for_count(5, "execution_state = 'dispatch_finished'", timeout_s=20, what="five outcomes")
    assert series(relay, "outbox_dispatch_attempts_total") == 5
    assert series(relay, "outbox_acceptances_total") == 3
    assert series(relay, "outbox_rejections_total") == 1
    assert series(relay, "outbox_unknown_total") == 1
    assert series(relay, "outbox_claimed_total") == 5
    assert series(relay, "outbox_stale_writes_refused_total") == 0
    assert series(relay, "outbox_wakeups_total") > 0
    assert "outbox_actions_created_total" not in str(relay.metrics()), "the ledger's figures have one exporter"


def test_nothing_private_is_in_the_log_or_the_metrics(scenario: SetStage) -> None:
    stage = scenario("resend", profile=PATIENT)
    provider = stage.providers["resend"]
    provider.spoil(Fault.REFUSE, key="private-key:1")
    provider.spoil(Fault.ACCEPT_THEN_DROP, key="private-key:2")
    provider.spoil(Fault.GARBAGE, key="private-key:3")
    relay = stage.start_relay(OUTBOX_LOG_LEVEL="debug")
    stage.add("resend", [f"private-key:{number}" for number in range(5)])
    stage.wait_for_count(5, "execution_state = 'dispatch_finished'", timeout_s=20, what="five outcomes")
    told = relay.get("/metrics")[1] + relay.get("/readyz")[1]
    assert relay.terminate() == 0
    told += relay.log_path.read_text()
    for private in ("private-key", "oncall@example.com", "Deployed.", "trial-secret", "Bearer"):
        assert private not in told
    password = re.search(r":([^:@/]+)@", stage.ledger.dsn("relay"))
    assert password is None or password[1] not in told
