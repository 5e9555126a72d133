"""The relay's loops in this process, on the real ledger, with one call of it made to fail at an exact point."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from outbox_relay.attempt.attempt import attempt
from outbox_relay.attempt.classify import Classification
from outbox_relay.attempt.send import Sender, open_http_client
from outbox_relay.dispatch.limits import AccountGate, Limits
from outbox_relay.dispatch.loop import Timing
from outbox_relay.dispatch.relay import Instruments, Relay
from outbox_relay.errors import LedgerUnavailable, OutboxError
from outbox_relay.ledger.claims import Claims
from outbox_relay.ledger.outcomes import Outcomes
from outbox_relay.ledger.pool import Ledger, open_ledger
from outbox_relay.ledger.records import Claim, ClaimToken, Demand, Outcome, Recorded
from outbox_relay.providers.accounts import load_accounts
from outbox_relay.providers.registry import load_contracts
from outbox_relay.telemetry import Health, RelayMetrics, get_logger, new_registry
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import wait_until
from outbox_relay.trial.scenario import SECRET, SECRET_VARIABLE, Scenario

SetStage = Callable[..., Scenario]


@pytest.fixture
def stage(scenario: SetStage) -> Scenario:
    """The stage is set before the test's event loop runs."""
    return scenario("resend")


class ClaimsLosingAnswers(Claims):
    """Commits the claim, then loses the answer; the first recalls fail as well."""

    def __init__(self, ledger: Ledger, *, claims_lost: int, recalls_lost: int) -> None:
        super().__init__(ledger._session)
        self.claims_lost = claims_lost
        self.recalls_lost = recalls_lost
        self.asked: list[str] = []

    async def claim(
        self, demands: Sequence[Demand], *, token: ClaimToken, lease_s: float, deadline_s: float, worker: str
    ) -> list[Claim]:
        self.asked.append("claim")
        got = await super().claim(demands, token=token, lease_s=lease_s, deadline_s=deadline_s, worker=worker)
        if got and self.claims_lost:
            self.claims_lost -= 1
            raise LedgerUnavailable("the answer to COMMIT was lost")
        return got

    async def recall(self, token: ClaimToken) -> list[Claim]:
        self.asked.append("recall")
        if self.recalls_lost:
            self.recalls_lost -= 1
            raise LedgerUnavailable("still away")
        return await super().recall(token)


class OutcomesLosingAnswers(Outcomes):
    """Stores the outcomes, then loses the answer."""

    def __init__(self, ledger: Ledger, *, lost: int) -> None:
        super().__init__(ledger._session)
        self.lost = lost

    async def record(self, outcomes: Sequence[Outcome]) -> list[Recorded]:
        recorded = await super().record(outcomes)
        if self.lost:
            self.lost -= 1
            raise LedgerUnavailable("the answer to COMMIT was lost")
        return recorded


class OutcomesRefusingOne(Outcomes):
    """Refuses every batch with the evidence of one action in it, as a database does with bytes that it cannot hold."""

    def __init__(self, ledger: Ledger, *, reason: str) -> None:
        super().__init__(ledger._session)
        self.reason = reason

    async def record(self, outcomes: Sequence[Outcome]) -> list[Recorded]:
        if any(outcome.evidence is not None and outcome.reason == self.reason for outcome in outcomes):
            raise OutboxError("invalid byte sequence")
        return await super().record(outcomes)


@dataclass
class Running:
    """A relay in this process."""

    relay: Relay
    metrics: RelayMetrics
    task: asyncio.Task[int] = field(repr=False)

    async def stop(self) -> int:
        self.relay.stop()
        return await self.task

    def value(self, name: str) -> float:
        return sum(
            sample.value
            for metric in self.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == name
        )


async def fits() -> None:
    """No account was declared anew."""


@asynccontextmanager
async def running(
    stage: Scenario,
    *,
    claims: Callable[[Ledger], Claims] | None = None,
    outcomes: Callable[[Ledger], Outcomes] | None = None,
    lease_s: float = 8.0,
    deadline_s: float = 5.0,
) -> AsyncIterator[Running]:
    """Start the relay's loops over the stage's ledger and accounts."""
    contracts = load_contracts(stage.folder / "contracts")
    declared = load_accounts(stage.folder / "providers.yaml", contracts, {SECRET_VARIABLE: SECRET})
    accounts = {(account.provider, account.account): account for account in declared}
    metrics = RelayMetrics(new_registry("relay"))
    timing = Timing(lease_s=lease_s, deadline_s=deadline_s, sweep_s=0.25, linger_s=0.003, polling=True)
    async with (
        open_ledger(stage.ledger.dsn("relay"), environment="test", application="test", max_size=4) as ledger,
        open_http_client() as client,
    ):
        relay = Relay(
            claims(ledger) if claims else ledger.claims,
            outcomes(ledger) if outcomes else ledger.outcomes,
            accounts=accounts,
            gates={key: AccountGate(Limits(slots=16), now=time.monotonic()) for key in accounts},
            sender=Sender(client),
            misfit=fits,
            timing=timing,
            worker="in-process",
            instruments=Instruments(metrics, Health(), get_logger("test")),
        )
        task = asyncio.create_task(relay.run(None))
        try:
            yield Running(relay, metrics, task)
        finally:
            relay.stop()
            await task


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait without holding up the loop under test."""
    await asyncio.to_thread(wait_until, condition, timeout_s=20, what=what)


async def all_confirmed(stage: Scenario, count: int) -> None:
    await until(lambda: stage.count("delivery_state = 'delivery_confirmed'") == count, f"{count} acceptances")


async def test_a_claim_whose_commit_was_lost_is_recognised_and_sent(stage: Scenario) -> None:
    stage.add("resend", ["deploy:1", "deploy:2"])
    spoiled: list[ClaimsLosingAnswers] = []

    def losing(ledger: Ledger) -> Claims:
        spoiled.append(ClaimsLosingAnswers(ledger, claims_lost=1, recalls_lost=2))
        return spoiled[0]

    async with running(stage, claims=losing) as relay:
        await all_confirmed(stage, 2)
        assert await relay.stop() == 0
    assert spoiled[0].asked[:4] == ["claim", "recall", "recall", "recall"], "nothing else before it knows"
    assert len(stage.providers["resend"].book.requests()) == 2
    assert stage.count("attempt_count <> 1") == 0


async def test_a_claim_that_stays_lost_is_not_sent_and_becomes_unknown(stage: Scenario) -> None:
    """The lease ran out before the ledger was back: nobody may send on it any more."""
    stage.add("resend", ["deploy:1"])
    async with running(
        stage,
        claims=lambda ledger: ClaimsLosingAnswers(ledger, claims_lost=1, recalls_lost=1_000),
        lease_s=1.6,
        deadline_s=1.0,
    ) as relay:
        await until(lambda: stage.count("delivery_state = 'delivery_unknown'") == 1, "the unknown")
        assert await relay.stop() == 0
    assert stage.providers["resend"].book.requests() == []


async def test_a_claim_whose_answer_came_after_its_lease_is_not_sent(stage: Scenario) -> None:
    """The lease counts from before the question: an answer that was long on its way leaves nothing of it."""
    condition = "exists (select from outbox.work_queue q where q.action_id = a.action_id and q.claimed_until > now())"

    class Slow(Claims):
        async def claim(
            self, demands: Sequence[Demand], *, token: ClaimToken, lease_s: float, deadline_s: float, worker: str
        ) -> list[Claim]:
            got = await super().claim(demands, token=token, lease_s=lease_s, deadline_s=deadline_s, worker=worker)
            if got:
                await until(lambda: stage.count(condition) == 0, "the lease to end on the way")
            return got

    stage.add("resend", ["deploy:1"])
    async with running(stage, claims=lambda ledger: Slow(ledger._session), lease_s=1.6, deadline_s=1.0) as relay:
        await until(lambda: relay.value("outbox_released_total") >= 1, "the claim to be given up unsent")
        assert stage.providers["resend"].book.requests() == []
        assert await relay.stop() == 0


async def test_an_outcome_whose_commit_was_lost_is_stored_once_and_no_claim_counts_as_lost(stage: Scenario) -> None:
    # One: of several in batches of their own each could lose one answer, and none would have to be stored a third time.
    stage.add("resend", ["deploy:1"])
    async with running(stage, outcomes=lambda ledger: OutcomesLosingAnswers(ledger, lost=2)) as relay:
        await all_confirmed(stage, 1)
        assert await relay.stop() == 0
        assert relay.value("outbox_stale_writes_refused_total") == 0
        assert relay.value("outbox_ledger_failures_total") == 2
    assert stage.count("duplicate_suspected") == 0
    assert len(stage.providers["resend"].book.requests()) == 1


async def test_an_outcome_that_cannot_be_stored_whole_does_not_hold_up_the_others(stage: Scenario) -> None:
    provider = stage.providers["resend"]
    provider.spoil(Fault.ACCEPT_THEN_DROP, key="poison")
    stage.add("resend", [*(f"deploy:{number}" for number in range(5)), "poison"])
    async with running(stage, outcomes=lambda ledger: OutcomesRefusingOne(ledger, reason="connection_lost")) as relay:
        await all_confirmed(stage, 5)
        await until(lambda: stage.count("delivery_state = 'delivery_unknown'") == 1, "the poisoned one")
        assert await relay.stop() == 0
    assert len(provider.book.requests("poison")) == 1


async def test_an_error_of_ours_after_the_claim_is_an_unknown_and_ends_the_program(
    stage: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def broken(*_args: object, **_options: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr("outbox_relay.dispatch.sending.attempt", broken)
    stage.add("resend", ["deploy:1"])
    async with running(stage) as relay:
        assert await asyncio.wait_for(asyncio.shield(relay.task), timeout=20) == 1
    (standing,) = stage.standings()
    assert (standing.delivery_state, standing.reason) == ("delivery_unknown", "relay_error")


async def test_a_loop_that_dies_ends_the_program_in_good_order(stage: Scenario) -> None:
    """The claim loop fails while a request is in flight: its outcome is still stored."""
    provider = stage.providers["resend"]
    provider.spoil(Fault.ACCEPT_THEN_HANG)

    class Breaking(Claims):
        async def sweep_expired(self, limit: int = 500, *, actor: str = "relay") -> int:
            if provider.announced("accepted"):
                raise OutboxError("a statement that the ledger does not know")
            return await super().sweep_expired(limit, actor=actor)

    stage.add("resend", ["deploy:1"])
    async with running(stage, claims=lambda ledger: Breaking(ledger._session)) as relay:
        await until(lambda: bool(provider.announced("accepted")), "the request")
        await asyncio.to_thread(provider.release, "answer")
        assert await asyncio.wait_for(asyncio.shield(relay.task), timeout=20) == 1
    assert stage.count("delivery_state = 'delivery_confirmed'") == 1


async def test_an_acceptance_that_comes_after_the_lease_changes_no_state_and_is_kept(
    stage: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a long stall of the process between the provider's answer and the write."""

    async def stalled(*arguments: Any, **options: Any) -> Classification:
        found = await attempt(*arguments, **options)
        await until(lambda: stage.count("delivery_state = 'delivery_unknown'") == 1, "the claim to expire")
        return found

    monkeypatch.setattr("outbox_relay.dispatch.sending.attempt", stalled)
    stage.add("resend", ["deploy:1"])
    async with running(stage, lease_s=1.6, deadline_s=1.0) as relay:
        await until(lambda: stage.late_acceptances() == 1, "the acceptance to be kept")
        assert relay.value("outbox_stale_writes_refused_total") == 1
        assert await relay.stop() == 0
    (standing,) = stage.standings()
    assert standing.delivery_state == "delivery_unknown"
    assert stage.unused_acceptances() == 1
    assert len(stage.providers["resend"].book.requests()) == 1


async def test_claims_that_arrive_during_the_stop_are_given_back_unsent(stage: Scenario) -> None:
    started: list[Running] = []

    class Stopping(Claims):
        async def claim(
            self, demands: Sequence[Demand], *, token: ClaimToken, lease_s: float, deadline_s: float, worker: str
        ) -> list[Claim]:
            got = await super().claim(demands, token=token, lease_s=lease_s, deadline_s=deadline_s, worker=worker)
            if got:
                started[0].relay.stop()
            return got

    async with running(stage, claims=lambda ledger: Stopping(ledger._session)) as relay:
        started.append(relay)
        await asyncio.to_thread(stage.add, "resend", [f"deploy:{number}" for number in range(5)])
        assert await asyncio.wait_for(asyncio.shield(relay.task), timeout=20) == 0
        assert relay.value("outbox_released_total") == 5
    assert stage.count("execution_state = 'action_created' and attempt_count = 0") == 5
    assert stage.providers["resend"].book.requests() == []
