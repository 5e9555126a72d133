"""What a decision about an unknown may use: the terms of one provider operation, and the bounds we set ourselves.

Plain values, so that every branch of `decide` can be tested from a table. Terms never hold a credential.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from outbox_relay.ledger.records import AccountRow
from outbox_relay.providers.contract import Operation, ProviderContract
from outbox_relay.providers.idempotency import Idempotency
from outbox_relay.providers.parts import Step


class Reason(StrEnum):
    """Why the reconciler does not go on by itself, or waits. Also the reason class of reviews and postponements."""

    # The configuration does not say how to reach the provider.
    ACCOUNT_MISSING = "account_missing"
    CONTRACT_MISSING = "contract_missing"
    OPERATION_MISSING = "operation_missing"
    # What is configured is not what the attempts were sent with.
    ACCOUNT_CHANGED = "account_changed"
    BASE_URL_CHANGED = "base_url_changed"
    CONTRACT_CHANGED = "contract_changed"
    REQUEST_CHANGED = "request_changed"
    ACCOUNT_NOT_LIVE = "account_not_live"
    # The agent no longer wants it sent.
    CANCEL_REQUESTED = "cancel_requested"
    DEADLINE_PASSED = "deadline_passed"
    # What the provider answered.
    KEY_MISMATCH = "key_mismatch"
    REPLAY_REFUSED = "replay_refused"
    REPLAYED_SERVER_ERROR = "replayed_server_error"
    REPLAY_HELD = "replay_held"
    # Bounds and windows.
    WINDOW_OVER = "window_over"
    WINDOW_UNPUBLISHED = "window_unpublished"
    REPLAYS_EXHAUSTED = "replays_exhausted"
    LOOKUPS_EXHAUSTED = "lookups_exhausted"
    LOOKUP_FAILING = "lookup_failing"
    LOOKUP_NOT_PROOF = "lookup_not_proof"
    LOOKUP_WINDOW_OVER = "lookup_window_over"
    UNRESOLVED_TOO_LONG = "unresolved_too_long"
    NOTHING_TO_ASK = "nothing_to_ask"
    # Waiting, not stuck.
    IN_FLIGHT = "in_flight"
    SETTLING = "settling"
    IN_PROGRESS = "in_progress"
    NO_ANSWER = "no_answer"
    PACED = "paced"
    PROVIDER_IN_TROUBLE = "provider_in_trouble"
    NOTHING_TO_RESOLVE = "nothing_to_resolve"


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """When the provider promises that a repeated request has no second effect."""

    window_s: float
    """From the first attempt: the published retention, or the small declared one, less the contract's margin."""
    published: bool
    """False when the provider publishes no retention and the window is our own, small one."""
    concurrent_safe: bool = False
    """True when a replay is safe while an earlier attempt may still be on its way."""
    refusal_proves_absence: bool = False
    """True when a definite refusal of a replay shows that no earlier attempt was accepted."""
    in_progress_reasons: frozenset[str] = frozenset()
    """Reason classes of answers that say only that the provider is still at work under this key."""


@dataclass(frozen=True, slots=True)
class LookupTerms:
    """What the provider's own record can say."""

    authoritative: bool
    """True when an empty answer, all pages read and after the settle time, is proof of absence."""
    lag_s: float
    """How long after being processed an action may still be missing from the answer."""
    retention_s: float | None = None
    """How long the provider's record keeps an action; None when as long as the object lives."""


@dataclass(frozen=True, slots=True)
class Terms:
    """One operation of one configured account, as far as decisions need it."""

    provider: str
    account: str
    operation: str
    contract_type: str
    contract_version: str
    base_url: str
    account_identity: str
    live: bool
    processing_s: float
    """How long the provider may take from the last byte of a request to its effect."""
    order: tuple[Step, ...]
    """The ways the contract names, first choice first, without the person; empty when only a person can tell."""
    lookup: LookupTerms | None
    replay: ReplayTerms | None
    review_owner: str


@dataclass(frozen=True, slots=True)
class NoTerms:
    """The configuration has nothing for this action's account, contract or operation."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Policy:
    """Our own bounds. None can make a replay or an absence safe; each can only end the search for one earlier."""

    margin_s: float = 10.0
    """Taken off a replay window besides the contract's own margin: what is decided may be sent a deadline later."""
    backoff_first_s: float = 2.0
    backoff_max_s: float = 1800.0
    spread: float = 0.2
    """Every wait is lengthened by a random part of itself up to this, so that a storm does not come back as one."""
    early_lookups_max: int = 3
    """Lookups before the settle time: they can find, they cannot prove absence."""
    lookups_max: int = 5
    """Complete answers that settled nothing."""
    lookup_failures_max: int = 3
    """Failed lookups before the contract's next way is tried; failures never end the search by themselves."""
    replays_max: int = 24
    resends_max: int = 3
    review_after_s: float = 3600.0
    """A person is told of an unknown that is this old, even while the search goes on."""
    give_up_after_s: float = 7 * 86400.0
    """The search ends here at the latest; the review stays open."""
    look_again_s: float = 300.0
    """How soon a case is looked at again when a fix of the configuration would free it."""
    fallback_owner: str = "platform"
    """Owns the reviews of accounts that are not configured any more."""
    review_due_s: float = 4 * 3600.0
    review_due_least_s: float = 900.0
    review_due_before_window_s: float = 3600.0
    """A review is due this long before the end of the window in which a replay would be safe, if there is time."""


def policy_for(deadline_s: float) -> Policy:
    """The bounds that fit a provider deadline: shorter deadlines (as in tests) make shorter waits.

    At the default deadline of 10 s this is `Policy()`.
    """
    scale = deadline_s / 10.0
    return Policy(
        margin_s=deadline_s,
        backoff_first_s=2.0 * scale,
        backoff_max_s=max(1800.0 * scale, 1.0),
        look_again_s=max(300.0 * scale, 1.0),
    )


def terms_of(contract: ProviderContract, row: AccountRow) -> Terms | NoTerms:
    """What this contract and this configured account say about one operation."""
    operation = contract.operations.get(row.operation)
    if operation is None:
        return NoTerms(Reason.OPERATION_MISSING)
    return Terms(
        provider=row.provider,
        account=row.account,
        operation=row.operation,
        contract_type=str(operation.type),
        contract_version=row.contract_version,
        base_url=row.base_url,
        account_identity=row.account_identity,
        live=row.mode == "live",
        processing_s=operation.processing_s,
        order=tuple(step for step in operation.resolution if step is not Step.PERSON),
        lookup=_lookup_terms(operation),
        replay=_replay_terms(operation),
        review_owner=row.review_owner,
    )


def _lookup_terms(operation: Operation) -> LookupTerms | None:
    if operation.lookup is None:
        return None
    lookup = operation.lookup
    # A contract without a settle time is refused when it is loaded; without one nothing could be proof.
    settled = lookup.settle_s is not None
    return LookupTerms(lookup.authoritative and settled, lookup.settle_s or 0.0, lookup.retention_s)


def _replay_terms(operation: Operation) -> ReplayTerms | None:
    key = operation.idempotency
    if key.window_s is None:
        return None
    return ReplayTerms(
        window_s=key.window_s,
        published=key.retention_s != "unpublished",
        refusal_proves_absence=key.refused_replay_proves_absence,
        in_progress_reasons=_in_progress_reasons(key),
    )


def _in_progress_reasons(key: Idempotency) -> frozenset[str]:
    """A reason that the contract also gives to a mismatch stays one: the graver meaning wins."""
    at_work = {rule.reason for rule in key.in_progress if rule.reason}
    return frozenset(at_work - {rule.reason for rule in key.mismatch})


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The terms of everything that is configured."""

    terms: Mapping[tuple[str, str, str], Terms | NoTerms]
    """By provider, account and operation."""

    def windows_s(self, policy: Policy) -> dict[tuple[str, str, str], float]:
        """How long after the first attempt a replay is safe, where there is one; our own margin taken off."""
        return {
            key: max(0.0, terms.replay.window_s - policy.margin_s)
            for key, terms in self.terms.items()
            if isinstance(terms, Terms) and terms.replay is not None
        }

    def of(self, provider: str, account: str, operation: str) -> Terms | NoTerms:
        """The terms, or why there are none."""
        found = self.terms.get((provider, account, operation))
        if found is not None:
            return found
        known = any(key[:2] == (provider, account) for key in self.terms)
        return NoTerms(Reason.OPERATION_MISSING if known else Reason.ACCOUNT_MISSING)
