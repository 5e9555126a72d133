"""How a test reads the results of a drill."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_relay.trial.drill import DrillResult


def assert_passed(results: Sequence[DrillResult], *, runs: int, groups: int) -> None:
    """Every group ran in full, every action had one effect, and nothing that must hold was broken."""
    assert len(results) == groups
    for result in results:
        assert not result.broken, "\n".join(result.broken[:20])
        assert (result.runs, result.duplicates, result.lost, result.undecided_without_owner) == (runs, 0, 0, 0)
        assert result.effects_per_key == {"1": runs}


def assert_held(results: Sequence[DrillResult], *, runs: int, groups: int) -> None:
    """As `assert_passed`, for drills in which an action may rightly end without an effect, or with a person."""
    assert len(results) == groups
    for result in results:
        assert not result.broken, "\n".join(result.broken[:20])
        assert (result.runs, result.duplicates, result.lost, result.undecided_without_owner) == (runs, 0, 0, 0)
