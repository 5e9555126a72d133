"""How an action must end after a lost answer: by what evidence, with how many attempts, or with whom.

Judged by the provider's book and the ledger; it changes neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from outbox_relay.trial.declared import REVIEW_OWNER
from outbox_relay.trial.drill import CONFIRMED, Judge
from outbox_relay.trial.scenario import Scenario, Standing


@dataclass(frozen=True, slots=True)
class Ending:
    """What must be true of every action of a group."""

    effects: int
    deliveries: frozenset[str]
    """One of these."""
    attempts: tuple[int, int]
    """At least and at most."""
    resolution: str | None = None
    reasons: frozenset[str] = frozenset()
    """Of the open review; empty when nobody may be asked any more."""


def by_replay(*, attempts: tuple[int, int] = (2, 2)) -> Ending:
    """The same request again told it."""
    return Ending(1, frozenset({"reconciled_confirmed"}), attempts, "replay")


def by_lookup(*, attempts: tuple[int, int] = (1, 1)) -> Ending:
    """The provider's record showed it."""
    return Ending(1, frozenset({"reconciled_confirmed"}), attempts, "lookup")


def sent_again() -> Ending:
    """Absence was proven, and the second send, under the same key, was answered, be it late."""
    return Ending(1, CONFIRMED, (2, 2), "response")


def proven_not_to_exist(*, attempts: tuple[int, int]) -> Ending:
    """The provider's refusal is proof."""
    return Ending(0, frozenset({"reconciled_failed"}), attempts, "replay")


def with_a_person(*reasons: str, effects: int, attempts: tuple[int, int] = (1, 1)) -> Ending:
    """Nobody knows: it stays unknown, and an owner has it for one of these reasons."""
    return Ending(effects, frozenset({"delivery_unknown"}), attempts, None, frozenset(reasons))


def expect_ending(judge: Judge, provider: str, prefix: str, ending: Ending) -> None:
    """Note every action of a group that ended otherwise."""
    scenario = judge.scenario
    effects = scenario.providers[provider].book.effects_per_key()
    reviews = open_reviews(scenario, prefix)
    at_least, at_most = ending.attempts

    def of(each: Standing) -> str | None:
        return reviews.get(each.key, (None, None))[0]

    judge.expect_each(
        prefix,
        f"{ending.effects} effects, {sorted(ending.deliveries)} by {ending.resolution} in {at_least} to {at_most}",
        lambda each: (
            effects.get(each.key, 0) == ending.effects
            and each.delivery_state in ending.deliveries
            and each.resolution == ending.resolution
            and at_least <= each.attempts <= at_most
        ),
    )
    if not ending.reasons:
        judge.expect_each(prefix, "nobody is asked", lambda each: not each.in_review)
        return
    judge.expect_each(prefix, f"a review for {sorted(ending.reasons)}", lambda each: of(each) in ending.reasons)
    for key, (reason, owner) in reviews.items():
        judge.expect(owner == REVIEW_OWNER, f"{key} has an owner: {owner} for {reason}")


def open_reviews(scenario: Scenario, prefix: str) -> dict[str, tuple[str, str]]:
    """Reason and owner of the open review of each action that has one."""
    with psycopg.connect(scenario.ledger.dsn("owner")) as connection:
        rows = connection.execute(
            "select a.idempotency_key, r.reason, r.owner from outbox.reviews r"
            " join outbox.outbound_actions a using (action_id)"
            " where r.closed_at is null and starts_with(a.idempotency_key, %s)",
            [prefix],
        ).fetchall()
    return {key: (reason, owner) for key, reason, owner in rows}
