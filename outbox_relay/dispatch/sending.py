"""One claimed action, from claim to outcome, in a task of its own.

Whatever goes wrong inside, an outcome comes out: an error of ours after the claim is an unknown, because nobody can say
any more whether bytes left. It never retries and never looks at another action.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import assert_never

from outbox_relay.attempt.attempt import attempt
from outbox_relay.attempt.classify import Classification, Finding
from outbox_relay.attempt.lease import Lease
from outbox_relay.attempt.send import Sender
from outbox_relay.attempt.telling import line_of
from outbox_relay.dispatch.demand import AccountKey
from outbox_relay.dispatch.limits import AccountGate, Effect, Permit
from outbox_relay.dispatch.writer import Finished
from outbox_relay.errors import LedgerUnavailable, OutboxError
from outbox_relay.ledger.records import Claim, Evidence, Outcome
from outbox_relay.providers.accounts import Account
from outbox_relay.states import Event
from outbox_relay.telemetry import Logger, RelayMetrics, child, log_attempt, log_failure
from outbox_relay.values import value

MISFITS = frozenset({"contract_changed", "address_changed", "account_changed", "operation_missing"})
"""Reasons for a hold that may be ours: somebody declared new accounts while this program runs with the old ones."""

Misfit = Callable[[], Awaitable[OutboxError | None]]
"""Compares this program's accounts with the ledger's; an error that says how they differ, or None."""


def effect_of(classification: Classification) -> Effect:
    """What the attempt says about the account's health."""
    match classification.finding:
        case Finding.ACCEPTED | Finding.REFUSED | Finding.IN_PROGRESS | Finding.MISMATCH:
            return Effect.HEALTHY
        case Finding.NO_EFFECT:
            return Effect.THROTTLED if classification.pause_account else Effect.TROUBLE
        case Finding.UNKNOWN:
            return Effect.BLOCKED if classification.pause_account else Effect.TROUBLE
        case Finding.HELD:
            return Effect.BLOCKED if classification.pause_account else Effect.NEUTRAL
        case Finding.RELEASED:
            return Effect.NEUTRAL
        case _:
            assert_never(classification.finding)


def outcome_of(claim: Claim, classification: Classification) -> Outcome:
    """What the attempt proved, as the ledger takes it."""
    return Outcome(
        action_id=claim.action_id,
        claim_token=claim.claim_token,
        event=classification.event,
        reason=classification.reason,
        provider_id=classification.provider_id,
        retry_in_s=classification.retry_after_s if classification.finding is Finding.NO_EFFECT else None,
        message=classification.message,
        # A plain acceptance needs no evidence, unless it comes too late: then the ledger keeps what it is given.
        evidence=None if classification.finding is Finding.RELEASED else classification.evidence,
    )


def lost_by_us(claim: Claim) -> Outcome:
    """An error of this program after the claim: bytes may have left, so only the reconciler can tell."""
    return Outcome(
        action_id=claim.action_id,
        claim_token=claim.claim_token,
        event=Event.RESPONSE_LOST,
        reason="relay_error",
        message="the relay failed during the attempt; see its log",
        evidence=Evidence(kind="no_response", proves="nothing", reason="relay_error", attempt=claim.attempt),
    )


def unsent(claim: Claim, reason: str) -> Outcome:
    """A claim that is given back before anything was tried."""
    return Outcome(claim.action_id, claim.claim_token, Event.RELEASED, reason)


@value
class UnderWay:
    """An attempt from its claim to its outcome."""

    claim: Claim
    lease: Lease
    permit: Permit
    began: float
    """Monotonic seconds."""


class Dispatcher:
    """Starts attempts and sees each one to its outcome."""

    def __init__(
        self,
        accounts: Mapping[AccountKey, Account],
        gates: Mapping[AccountKey, AccountGate],
        sender: Sender,
        *,
        deadline_s: float,
        put: Callable[[Finished], None],
        slot_freed: Callable[[AccountKey], None],
        fatal: Callable[[Exception], None],
        misfit: Misfit,
        metrics: RelayMetrics,
        log: Logger,
    ) -> None:
        self._accounts = accounts
        self._gates = gates
        self._sender = sender
        self._deadline_s = deadline_s
        self._put = put
        self._slot_freed = slot_freed
        self._fatal = fatal
        self._misfit = misfit
        self._metrics = metrics
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        for account, gate in gates.items():
            _show(metrics, account, gate)

    @property
    def in_flight(self) -> int:
        """Attempts under way."""
        return len(self._tasks)

    def start(self, claim: Claim, lease: Lease, permit: Permit) -> None:
        """Begin an attempt in a task of its own; its slot was taken already."""
        under_way = UnderWay(claim, lease, permit, time.monotonic())
        task = asyncio.create_task(self._see_through(under_way), name="attempt")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def release(self, claim: Claim, permit: Permit) -> None:
        """Give a claim back unsent, because the program stops."""
        now = time.monotonic()
        self._gates[claim.provider, claim.account].finish(Effect.NEUTRAL, permit, now)
        self._metrics.released.labels(claim.provider).inc()
        self._finished(claim, unsent(claim, "shutting_down"), now)

    async def drain(self, *, within_s: float) -> int:
        """Wait for what is in flight; return how many attempts are still under way after `within_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        return len(self._tasks)

    async def _see_through(self, under_way: UnderWay) -> None:
        claim = under_way.claim
        account = self._accounts[claim.provider, claim.account]
        try:
            found = await attempt(
                claim, account.contract, account, self._sender, under_way.lease, deadline_s=self._deadline_s, brief=True
            )
        except Exception as error:  # noqa: BLE001 - the claim must end in an outcome, then the program stops
            log_failure(self._log.bind(action_id=str(claim.action_id)), "attempt_failed", error)
            self._conclude(under_way, lost_by_us(claim), Effect.NEUTRAL, None)
            self._fatal(error)
            return
        if found.reason in MISFITS and await self._is_our_fault():
            self._metrics.released.labels(claim.provider).inc()
            self._conclude(under_way, unsent(claim, found.reason), Effect.NEUTRAL, None)
            return
        self._tell(claim, found, time.monotonic() - under_way.began)
        self._conclude(under_way, outcome_of(claim, found), effect_of(found), found.retry_after_s)

    async def _is_our_fault(self) -> bool:
        """True when new accounts were declared under a running relay: it must end, not put the backlog on hold."""
        try:
            error = await self._misfit()
        except LedgerUnavailable:
            return True
        if error is not None:
            self._fatal(error)
        return error is not None

    def _conclude(self, under_way: UnderWay, outcome: Outcome, effect: Effect, retry_after_s: float | None) -> None:
        claim = under_way.claim
        account = (claim.provider, claim.account)
        self._gates[account].finish(effect, under_way.permit, time.monotonic(), retry_after_s=retry_after_s)
        self._finished(claim, outcome, under_way.began)
        self._slot_freed(account)

    def _finished(self, claim: Claim, outcome: Outcome, began: float) -> None:
        self._put(
            Finished(
                outcome=outcome,
                account=(claim.provider, claim.account),
                ordered=claim.ordering_key is not None,
                due_age_s=claim.due_age_s,
                claimed_at=began,
            )
        )

    def _tell(self, claim: Claim, found: Classification, duration_s: float) -> None:
        line = line_of(claim, found, duration_s)
        log_attempt(self._log, line)
        metrics = self._metrics
        if found.finding is Finding.RELEASED:
            metrics.released.labels(claim.provider).inc()
            return
        child(metrics.attempts, claim.provider, claim.account, found.finding).inc()
        exemplar = {"trace_id": line.trace_id} if line.trace_id else None
        child(metrics.attempt_seconds, claim.provider).observe(duration_s, exemplar)
        if found.event is Event.ACCEPTED:
            child(metrics.acceptances, claim.provider, "response").inc()
        elif found.event is Event.REFUSED:
            metrics.rejections.labels(claim.provider).inc()
        elif found.event is Event.RESPONSE_LOST:
            metrics.unknown.labels(claim.provider, found.evidence.phase or "unclear").inc(exemplar=exemplar)


def _show(metrics: RelayMetrics, account: AccountKey, gate: AccountGate) -> None:
    """Let the account's gauges read the gate whenever they are scraped."""
    metrics.in_flight.labels(*account).set_function(lambda: gate.in_flight)
    metrics.circuit_open.labels(*account).set_function(lambda: gate.open)
    metrics.paused.labels(*account).set_function(lambda: gate.paused(time.monotonic()))
