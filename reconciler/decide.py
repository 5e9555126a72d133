"""What to do next about one unknown: the decision, from the case, the contract's terms and our bounds alone.

Pure. It never guesses: a replay needs every condition that makes it safe, absence needs every condition that makes it
proof, and what neither can settle goes to a person. docs/guarantees.md tables every branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from outbox_relay.ledger.records import Evidence, UnknownCase
from outbox_relay.providers.parts import Step
from outbox_relay.states import DeliveryState, Event
from reconciler.seen import Seen, empty_lookups, failed_lookups, key_is_known, place_changed
from reconciler.settle import replay_until, settles_at, window_ends
from reconciler.terms import NoTerms, Policy, Reason, Terms


@dataclass(frozen=True, slots=True)
class UseEvidence:
    """An acceptance is known by another way: settle the action with it, ask nobody."""

    event: Event
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing may be concluded or sent before this moment."""

    until: datetime
    reason: Reason


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ask the provider for its own record."""

    empty_is_proof: bool
    """True when an empty answer, with every page read, proves that the action does not exist."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Send the same request again, under the same key."""

    until: datetime
    """It may not be sent at or after this moment."""


@dataclass(frozen=True, slots=True)
class Review:
    """Only a person can go on."""

    reason: Reason
    obstacles: tuple[Reason, ...]
    """Why each of the contract's ways is closed, in its order."""
    look_again: bool
    """True when a fix of the configuration would free the case without a decision."""


Decision = UseEvidence | WaitUntil | Lookup | Replay | Review


@dataclass(frozen=True, slots=True)
class Closed:
    """One way is closed; `later` is what to do when no other way is open either."""

    reason: Reason
    later: WaitUntil | Lookup | None = None


# A change of the configuration can free these without anybody deciding about the action.
FIXABLE = frozenset(
    {
        Reason.ACCOUNT_MISSING,
        Reason.CONTRACT_MISSING,
        Reason.OPERATION_MISSING,
        Reason.ACCOUNT_CHANGED,
        Reason.BASE_URL_CHANGED,
        Reason.CONTRACT_CHANGED,
        Reason.REQUEST_CHANGED,
        Reason.ACCOUNT_NOT_LIVE,
    }
)

# When several ways are closed, the person reads the reason that says most about the action first.
TELLING = (
    Reason.KEY_MISMATCH,
    Reason.REPLAY_REFUSED,
    Reason.REPLAYED_SERVER_ERROR,
    Reason.ACCOUNT_CHANGED,
    Reason.BASE_URL_CHANGED,
    Reason.CONTRACT_CHANGED,
    Reason.ACCOUNT_NOT_LIVE,
    Reason.CANCEL_REQUESTED,
    Reason.DEADLINE_PASSED,
    Reason.WINDOW_OVER,
    Reason.WINDOW_UNPUBLISHED,
    Reason.REPLAYS_EXHAUSTED,
    Reason.LOOKUP_WINDOW_OVER,
    Reason.LOOKUP_NOT_PROOF,
    Reason.LOOKUPS_EXHAUSTED,
)


def decide(case: UnknownCase, terms: Terms | NoTerms, policy: Policy) -> Decision:
    """Name the one next step that this case's facts allow at `case.now`."""
    # An acceptance is the strongest fact there is: it wins over every rule below, from every state.
    if case.unused_acceptance is not None:
        return _use(case.unused_acceptance)
    # Rows of other states are handed out only for their unused acceptance; if that is gone there is nothing to do.
    if case.delivery_state is not DeliveryState.DELIVERY_UNKNOWN:
        return WaitUntil(case.now + timedelta(seconds=policy.look_again_s), Reason.NOTHING_TO_RESOLVE)
    # Without the account's configuration nothing can be asked and nothing may be sent.
    if isinstance(terms, NoTerms):
        return Review(terms.reason, (terms.reason,), look_again=not _given_up(case, policy))
    # A search without an end is a silent loss: after this long the review alone carries the action.
    if _given_up(case, policy):
        return Review(Reason.UNRESOLVED_TOO_LONG, (Reason.UNRESOLVED_TOO_LONG,), look_again=False)
    return _first_open_way(case, terms, policy)


def named(decision: Decision) -> str:
    """A decision in a word or two, for logs: what it is, and what it rests on."""
    match decision:
        case UseEvidence(event):
            return f"use {event}"
        case WaitUntil(_, reason):
            return f"wait {reason}"
        case Lookup(empty_is_proof):
            return "look, empty is proof" if empty_is_proof else "look"
        case Replay():
            return "replay"
        case Review(reason):
            return f"review {reason}"


def at(case_now: datetime, elapsed_s: float) -> datetime:
    """The database's clock, `elapsed_s` after it was read; a duration from our own clock never goes back in time."""
    return case_now + timedelta(seconds=max(elapsed_s, 0.0))


def _given_up(case: UnknownCase, policy: Policy) -> bool:
    return case.now >= case.unknown_since + timedelta(seconds=policy.give_up_after_s)


def _use(evidence: Evidence) -> UseEvidence:
    event = Event.RECEIPT_ARRIVED if evidence.kind == "receipt" else Event.LATE_ACCEPTANCE
    return UseEvidence(event, evidence)


def _first_open_way(case: UnknownCase, terms: Terms, policy: Policy) -> Decision:
    """The contract's order: the first way that is open; else the first that will be; else a person."""
    closed: list[Closed] = []
    for way in terms.order:
        step = WAYS[way](case, terms, policy)
        if not isinstance(step, Closed):
            return step
        closed.append(step)
    for way_closed in closed:
        if way_closed.later is not None:
            return way_closed.later
    obstacles = tuple(step.reason for step in closed)
    # Neither a key nor a lookup (type E): only a person, or the recipient, can tell.
    reason = next((telling for telling in TELLING if telling in obstacles), Reason.NOTHING_TO_ASK)
    return Review(reason, obstacles, look_again=reason in FIXABLE)


# ---- Lookup ---------------------------------------------------------------------------------------------------------


def _lookup(case: UnknownCase, terms: Terms, policy: Policy) -> WaitUntil | Lookup | Closed:
    if terms.lookup is None:
        return Closed(Reason.NOTHING_TO_ASK)
    # Another account's record says nothing about this action, neither way.
    if (changed := place_changed(case, terms)) is not None:
        return Closed(changed)
    # Answers were read and settled nothing; more of the same would be a loop.
    if case.lookups >= policy.lookups_max:
        return Closed(_why_not_proof(case, terms) or Reason.LOOKUPS_EXHAUSTED)
    if case.now < settles_at(case, terms):
        return _early_lookup(case, terms, policy)
    proof = _why_not_proof(case, terms) is None
    # Failures spend no bound, but they must not keep the action from a replay that is safe now and not for ever.
    if failed_lookups(case) >= policy.lookup_failures_max:
        return Closed(Reason.LOOKUP_FAILING, later=Lookup(proof))
    # Empty, and not proof: what the provider does show is no absence, so try the contract's next way first.
    if not proof and empty_lookups(case):
        return Closed(Reason.LOOKUP_NOT_PROOF, later=Lookup(proof))
    return Lookup(proof)


def _early_lookup(case: UnknownCase, terms: Terms, policy: Policy) -> WaitUntil | Lookup | Closed:
    """Before the settle time a lookup can find, never prove absence; so a few, then wait."""
    tried = empty_lookups(case) + failed_lookups(case)
    if tried < policy.early_lookups_max:
        return Lookup(empty_is_proof=False)
    wait = WaitUntil(settles_at(case, terms), Reason.SETTLING)
    # An answer that can be proof is worth the wait; one that cannot must not use up the replay window.
    return wait if _why_not_proof(case, terms) is None else Closed(Reason.SETTLING, later=wait)


def _why_not_proof(case: UnknownCase, terms: Terms) -> Reason | None:
    """Why an empty answer would not be proof of absence even after the settle time; None when it would be."""
    # The provider has said that it knows the key: an empty lookup contradicts that and proves nothing.
    if key_is_known(case, terms):
        return Reason.KEY_MISMATCH
    # The contract that looks is not the one that sent: it may look for a mark that was never set.
    if case.claim.contract_version != terms.contract_version:
        return Reason.CONTRACT_CHANGED
    if terms.lookup is None or not terms.lookup.authoritative:
        return Reason.LOOKUP_NOT_PROOF
    # The record may have dropped what it once showed.
    kept_s = terms.lookup.retention_s
    if kept_s is not None and case.now >= case.first_attempt_at + timedelta(seconds=kept_s):
        return Reason.LOOKUP_WINDOW_OVER
    return None


# ---- Replay ---------------------------------------------------------------------------------------------------------


def _replay(case: UnknownCase, terms: Terms, policy: Policy) -> WaitUntil | Replay | Closed:
    obstacle = _not_the_same(case, terms) or _not_wanted(case) or _answered(case, terms)
    if obstacle is not None:
        return Closed(obstacle)
    if case.replays >= policy.replays_max:
        return Closed(Reason.REPLAYS_EXHAUSTED)
    return _replay_in_time(case, terms, policy)


def _not_the_same(case: UnknownCase, terms: Terms) -> Reason | None:
    """A replay is the same request to the same account under the same contract, or it is not a replay."""
    if terms.replay is None:
        return Reason.NOTHING_TO_ASK
    if case.claim.contract_version != terms.contract_version:
        return Reason.CONTRACT_CHANGED
    if (changed := place_changed(case, terms)) is not None:
        return changed
    # An account in hold or shadow mode sends nothing, replays included.
    return None if terms.live else Reason.ACCOUNT_NOT_LIVE


def _not_wanted(case: UnknownCase) -> Reason | None:
    """After a cancel request or the deadline the agent no longer wants an effect: look, do not send."""
    if case.cancel_requested:
        return Reason.CANCEL_REQUESTED
    if case.deliver_by is not None and case.now >= case.deliver_by:
        return Reason.DEADLINE_PASSED
    return None


def _answered(case: UnknownCase, terms: Terms) -> Reason | None:
    """An answer that the same request would only repeat."""
    if key_is_known(case, terms):
        return Reason.KEY_MISMATCH
    reasons = {item.reason for item in case.evidence if item.kind == "replay"}
    if Seen.REPLAY_REFUSED in reasons:
        return Reason.REPLAY_REFUSED
    # The provider stored a failure under the key and will give it back for the whole window.
    return Reason.REPLAYED_SERVER_ERROR if Seen.REPLAYED_SERVER_ERROR in reasons else None


def _replay_in_time(case: UnknownCase, terms: Terms, policy: Policy) -> WaitUntil | Replay | Closed:
    """The window counts from the first attempt, in the database's time, less the margin."""
    if terms.replay is None:
        return Closed(Reason.NOTHING_TO_ASK)
    # Two requests under one key at the same time are only safe where the contract says so.
    earliest = case.now if terms.replay.concurrent_safe else max(case.now, case.in_flight_until)
    if earliest >= window_ends(case, terms, policy):
        return Closed(Reason.WINDOW_OVER if terms.replay.published else Reason.WINDOW_UNPUBLISHED)
    until = replay_until(case, terms, policy)
    # Nobody can be sure that the earlier attempt is over before the agent's deadline comes.
    if earliest >= until:
        return Closed(Reason.DEADLINE_PASSED)
    if earliest > case.now:
        return WaitUntil(earliest, Reason.IN_FLIGHT)
    return Replay(until)


WAYS: dict[Step, Callable[[UnknownCase, Terms, Policy], WaitUntil | Lookup | Replay | Closed]] = {
    Step.LOOKUP: _lookup,
    Step.REPLAY: _replay,
}
