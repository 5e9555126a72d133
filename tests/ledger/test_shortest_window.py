"""Of more unknowns than one claim takes, those come first whose replay window ends first, whoever's they are."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.ledger.factories import Row, Stage, in_one_hour

DAY_MS, MINUTES_MS = 86_400_000, 600_000
WINDOWS: Row = {"mail": {"default": {"send": DAY_MS}}, "pager": {"default": {"send": MINUTES_MS}}}
"""`chat` has no window."""
EACH = 6
LIMIT = 4


@pytest.fixture
def crowded(stage: Stage) -> dict[str, list[UUID]]:
    """Unknowns of three contracts, all due; those without a window have waited longest, the shortest last."""
    stage.declare({}, {"provider": "pager"}, {"provider": "chat"})
    return {provider: [lost(stage, provider) for _ in range(EACH)] for provider in ("chat", "mail", "pager")}


def lost(stage: Stage, provider: str, **columns: object) -> UUID:
    action = stage.insert(None, provider=provider, **columns)
    token = stage.claim(provider=provider)["token"]
    assert stage.report(action, token, "response_lost") == "applied"
    return action


def in_order(stage: Stage) -> list[UUID]:
    """What claims of one take, until nothing is due."""
    found: list[UUID] = []
    while ids := stage.look(1, windows=WINDOWS)["ids"]:
        found += ids
    return found


def test_the_window_that_ends_first_is_claimed_first(stage: Stage, crowded: dict[str, list[UUID]]) -> None:
    order = in_order(stage)
    assert order == [*crowded["pager"], *crowded["mail"], *crowded["chat"]], "minutes, a day, none"


def test_one_claim_takes_the_earliest_of_the_shortest(stage: Stage, crowded: dict[str, list[UUID]]) -> None:
    assert set(stage.look(LIMIT, windows=WINDOWS)["ids"]) == set(crowded["pager"][:LIMIT])


@pytest.mark.usefixtures("crowded")
def test_an_agents_deadline_ends_a_window_earlier(stage: Stage) -> None:
    hurried = lost(stage, "mail", deliver_by=in_one_hour(stage))
    order = in_order(stage)
    assert order.index(hurried) == EACH, "after the minutes, before the day"


def test_a_window_that_is_over_comes_before_nobody(stage: Stage, crowded: dict[str, list[UUID]]) -> None:
    stage.advance(3600)
    order = in_order(stage)
    assert order[: 2 * EACH] == [*crowded["mail"], *crowded["chat"]], "of those without a window the oldest first"


def test_what_another_reconciler_holds_costs_a_claim_nothing(stage: Stage, crowded: dict[str, list[UUID]]) -> None:
    other = Stage(stage.ledger)
    with other.as_("reconciler").transaction():
        assert set(other.look(LIMIT, windows=WINDOWS)["ids"]) == set(crowded["pager"][:LIMIT])
        assert set(stage.look(LIMIT - 2, windows=WINDOWS)["ids"]) == set(crowded["pager"][LIMIT:])
