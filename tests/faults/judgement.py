"""How a test reads the results of a drill."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_relay.trial.drill import DrillResult
from outbox_relay.trial.reached import EXPECTED, missed_by


def assert_passed(results: Sequence[DrillResult], *, runs: int, groups: int) -> None:
    """Every group ran in full, every action had one effect, and nothing that must hold was broken."""
    assert len(results) == groups
    assert_reached(results)
    for result in results:
        assert not result.broken, "\n".join(result.broken[:20])
        assert (result.runs, result.duplicates, result.lost, result.undecided_without_owner) == (runs, 0, 0, 0)
        assert result.effects_per_key == {"1": runs}


def assert_held(results: Sequence[DrillResult], *, runs: int, groups: int) -> None:
    """As `assert_passed`, for drills in which an action may rightly end without an effect, or with a person."""
    assert len(results) == groups
    assert_reached(results)
    for result in results:
        assert not result.broken, "\n".join(result.broken[:20])
        assert (result.runs, result.duplicates, result.lost, result.undecided_without_owner) == (runs, 0, 0, 0)


def assert_reached(results: Sequence[DrillResult]) -> None:
    """I10: what this drill must reach, it has."""
    for drill in EXPECTED:
        found = [result for result in results if f"{result.name} ".startswith(f"{drill} ")]
        if found:
            assert missed_by(drill, {branch for result in found for branch in result.reached}) == []
