"""One unknown, from its claim to a conclusion: decide, ask or replay under the claim, and say what that means.

A replay is committed as an attempt before a byte leaves. What goes wrong inside ends as a later look, never as a guess
and never as a lost case. Writes no conclusion itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from outbox_relay.attempt.attempt import attempt
from outbox_relay.attempt.classify import Classification, Finding
from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.attempt.render import render
from outbox_relay.attempt.request import CannotRender, Request
from outbox_relay.attempt.send import Sender
from outbox_relay.attempt.telling import line_of
from outbox_relay.errors import LedgerUnavailable
from outbox_relay.ledger.records import ActionId, Claim, ClaimToken, UnknownCase
from outbox_relay.providers.accounts import Account
from outbox_relay.states import Event
from outbox_relay.telemetry import Logger, ReconcilerMetrics, log_attempt, log_failure
from reconciler.conclude import (
    Conclusion,
    Found,
    Inconclusive,
    LookupAnswer,
    Setting,
    after_lookup,
    after_replay,
    conclude,
    review,
    wait,
)
from reconciler.decide import Lookup, Replay, at, decide, named
from reconciler.lookup import Question, look
from reconciler.pace import Account as AccountKey
from reconciler.pace import Pace
from reconciler.settle import spaced, window_left_s
from reconciler.terms import Catalogue, Policy, Reason

LEASE_SLACK_S = 0.1
"""Between the end of a wait for a turn and the last check of the lease: a fifth of what the settings leave for it."""
TURN_MAX_S = 5.0
"""A claim waits so long for its account's turn, then it is given back."""
WINDOW_PART = 0.05
"""The part of its remaining window for which a case stays away from a provider in trouble."""
TROUBLE_MAX = 10.0
"""It stays away no longer than this many gaps between probes."""


class ReplayStore(Protocol):
    """The part of the ledger that lets a replay begin."""

    async def begin_replay(
        self, action_id: ActionId, token: ClaimToken, *, lease_s: float, deadline_s: float
    ) -> Claim | None:
        """Commit a replay as an attempt before it is sent; None when it must not be sent after all."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds."""

    lease_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Held:
    """A case under our claim. `lease` counts from before the claim was asked for."""

    case: UnknownCase
    lease: Lease

    def latest_case(self) -> UnknownCase:
        """The case at the latest moment that it can be by the database's clock: for what must not happen too late.

        What must not happen too early, as absence or a second request in flight, rests on the clock of the claim.
        """
        elapsed_s = boottime() - self.lease.obtained_at_boottime
        return replace(self.case, now=at(self.case.now, elapsed_s))


class Resolver:
    """Carries out decisions. One instance serves all cases of a process at the same time."""

    def __init__(
        self,
        *,
        accounts: Mapping[AccountKey, Account],
        catalogue: Catalogue,
        store: ReplayStore,
        sender: Sender,
        pace: Pace,
        policy: Policy,
        timing: Timing,
        draw: Callable[[], float],
        storing: Callable[[], bool],
        metrics: ReconcilerMetrics,
        log: Logger,
    ) -> None:
        """`draw` gives numbers from 0 to 1, by which waits are spread; `storing` says if conclusions can be stored."""
        self._accounts = accounts
        self._catalogue = catalogue
        self._store = store
        self._sender = sender
        self._pace = pace
        self._policy = policy
        self._timing = timing
        self._draw = draw
        self._storing = storing
        self._metrics = metrics
        self._log = log

    async def see_through(self, held: Held) -> Conclusion | None:
        """Bring one case one step further. None when the ledger went away: the claim then runs out by itself."""
        setting = self._setting(held.case)
        try:
            return await self._step(held, setting)
        except LedgerUnavailable as error:
            # Whether the replay was committed is not known, and nothing was sent: the lease decides.
            self._metrics.ledger_failures.labels("begin_replay").inc()
            log_failure(self._log, "replay_not_begun", error)
            return None
        except Exception as error:  # noqa: BLE001 - one case that cannot be worked on must not keep the others waiting
            log_failure(self._log, "case_failed", error)
            return wait(setting, self._policy.look_again_s, "reconciler_error")

    async def _step(self, held: Held, setting: Setting) -> Conclusion | None:
        decision = decide(setting.case, setting.terms, self._policy)
        self._log.debug("decided", action_id=str(held.case.claim.action_id), decision=named(decision))
        match decision:
            case Lookup():
                return await self._in_turn(held, setting, lambda: self._look(held, setting, decision))
            case Replay():
                return await self._in_turn(held, setting, lambda: self._replay(held, decision))
            case _:
                return conclude(setting, decision)

    def _setting(self, case: UnknownCase) -> Setting:
        terms = self._catalogue.of(*_account_of(case.claim), case.claim.operation)
        return Setting(case, terms, self._policy, self._draw())

    async def _in_turn(
        self, held: Held, setting: Setting, act: Callable[[], Awaitable[Conclusion | None]]
    ) -> Conclusion | None:
        """Wait for the account's turn, as long as the lease then still covers a request; else give the claim back."""
        account, now = _account_of(held.case.claim), time.monotonic()
        spare_s = held.lease.remaining_s() - self._timing.deadline_s - LEASE_SLACK_S
        runs_out = bool(window_left_s(setting.case, setting.terms, self._policy))
        turn_s = self._pace.reserve(account, now, within_s=min(TURN_MAX_S, spare_s), runs_out=runs_out)
        if turn_s is None:
            why = Reason.PROVIDER_IN_TROUBLE if self._pace.in_trouble(account) else Reason.PACED
            return wait(setting, self._later_s(setting, account, now, runs_out=runs_out), why)
        try:
            await asyncio.sleep(turn_s)
            return await act()
        finally:
            self._pace.leave(account, took_s=time.monotonic() - now - turn_s)

    def _later_s(self, setting: Setting, account: AccountKey, now: float, *, runs_out: bool) -> float:
        """When a case that found no place comes back.

        A storm must not come back as one. Before a busy account each case takes its place in the line. While the
        provider is in trouble each waits a part of its remaining window: on recovery the shortest is there first.
        """
        window_s = window_left_s(setting.case, setting.terms, self._policy)
        least_s, longest_s = self._policy.backoff_first_s, self._policy.look_again_s
        most_s = longest_s if window_s is None else min(longest_s, window_s * WINDOW_PART)
        ready_s = self._pace.ready_in_s(account, now)
        if self._pace.in_trouble(account):
            later_s = max(min(most_s, ready_s * TROUBLE_MAX), least_s)
            return ready_s + spaced(later_s, self._policy, spread=self._draw())
        line_s = min(self._pace.line_up(account, now), most_s)
        later_s = max(line_s, ready_s + least_s) + least_s * self._draw()
        if runs_out:
            self._pace.keep_a_place(account, now + later_s)
        return later_s

    # ---- Lookup -----------------------------------------------------------------------------------------------------

    async def _look(self, held: Held, setting: Setting, decision: Lookup) -> Conclusion:
        claim = held.case.claim
        account = self._accounts[_account_of(claim)]
        answer = await look(Question(claim, account, held.lease, self._timing.deadline_s), self._sender)
        self._tell_lookup(claim, answer)
        return after_lookup(setting, decision, answer)

    def _tell_lookup(self, claim: Claim, answer: LookupAnswer) -> None:
        account = _account_of(claim)
        name = (
            "found" if isinstance(answer, Found) else "inconclusive" if isinstance(answer, Inconclusive) else "absent"
        )
        self._metrics.lookups.labels(claim.provider, name).inc()
        if isinstance(answer, Inconclusive):
            self._pace.failed(account, time.monotonic(), retry_after_s=answer.retry_after_s)
        else:
            self._pace.answered(account)
        if isinstance(answer, Found):
            self._metrics.acceptances.labels(claim.provider, "lookup").inc()
        self._log.info(
            "lookup",
            action_id=str(claim.action_id),
            provider=claim.provider,
            account=claim.account,
            operation=claim.operation,
            answer=name,
            reason=answer.evidence.reason,
            status=answer.evidence.status,
        )

    # ---- Replay -----------------------------------------------------------------------------------------------------

    async def _replay(self, held: Held, decision: Replay) -> Conclusion | None:
        case = held.case
        account = self._accounts[_account_of(case.claim)]
        if not self._storing():
            # Claimed before the trouble, and its turn came in it: the provider's answer could not be written down.
            return wait(self._setting(case), self._policy.backoff_first_s, Reason.PACED)
        obstacle = _not_the_same_request(case, account)
        if obstacle is not None:
            return review(self._setting(case), obstacle, look_again_in_s=self._policy.look_again_s)
        lease = Lease(boottime(), self._timing.lease_s)
        claim = await self._store.begin_replay(
            case.claim.action_id,
            case.claim.claim_token,
            lease_s=self._timing.lease_s,
            deadline_s=self._timing.deadline_s,
        )
        setting = self._setting(held.latest_case())
        # The claim was lost, a cancel was asked for or the deadline passed meanwhile; or the window ended while we
        # waited for our turn. Nothing is sent; the next look decides anew.
        if claim is None or setting.case.now >= decision.until:
            return wait(setting, self._policy.backoff_first_s, Reason.IN_FLIGHT)
        began = time.monotonic()
        answer = await attempt(
            claim, account.contract, account, self._sender, lease, deadline_s=self._timing.deadline_s
        )
        self._tell_replay(claim, answer, time.monotonic() - began)
        return after_replay(self._setting(held.latest_case()), answer)

    def _tell_replay(self, claim: Claim, answer: Classification, duration_s: float) -> None:
        account = _account_of(claim)
        if shows_trouble(answer):
            self._pace.failed(account, time.monotonic(), retry_after_s=answer.retry_after_s)
        elif answer.finding is not Finding.RELEASED:
            self._pace.answered(account)
        self._metrics.attempts.labels(claim.provider, claim.account, answer.finding).inc()
        self._metrics.attempt_seconds.labels(claim.provider).observe(duration_s)
        if answer.finding is Finding.ACCEPTED:
            self._metrics.acceptances.labels(claim.provider, "replay").inc()
        elif answer.event is Event.RESPONSE_LOST:
            self._metrics.unknown.labels(claim.provider, answer.evidence.phase or "unclear").inc()
        log_attempt(self._log, line_of(claim, answer, duration_s))


_TROUBLE = frozenset({Finding.UNKNOWN, Finding.NO_EFFECT, Finding.HELD})


def shows_trouble(answer: Classification) -> bool:
    """True when a replay's answer speaks against the provider's health: what gives back a stored answer is well."""
    return answer.finding in _TROUBLE and not answer.replayed


def _account_of(claim: Claim) -> AccountKey:
    return claim.provider, claim.account


def _not_the_same_request(case: UnknownCase, account: Account) -> Reason | None:
    """Render before anything is committed: a request that differs from what was sent is no replay."""
    try:
        request = render(case.claim, account.contract, account)
    except CannotRender:
        return Reason.REPLAY_HELD
    return None if sends_the_same(case, request) else Reason.REQUEST_CHANGED


def sends_the_same(case: UnknownCase, request: Request) -> bool:
    """True when bytes, address, key and account are those of every earlier attempt that is known."""
    now = (request.body_sha256, request.target, request.wire_key, request.account_identity)
    return all(
        (item.body_sha256, item.url, item.wire_key, item.account_identity) == now
        for item in case.evidence
        if item.body_sha256 is not None
    )
