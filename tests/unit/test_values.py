"""Values of the hot way are plain at run time; what keeps them as they are is the type checker."""

from __future__ import annotations

import dataclasses

import pytest

from outbox_relay.values import value


@value
class Pair:
    left: str
    right: int = 0


def test_a_value_is_equal_and_hashed_by_what_it_holds() -> None:
    assert Pair("a", 1) == Pair("a", 1) != Pair("a")
    assert {Pair("a"): 1}[Pair("a", 0)] == 1
    assert dataclasses.replace(Pair("a"), right=2) == Pair("a", 2)


def test_a_value_takes_no_field_that_it_does_not_have() -> None:
    with pytest.raises(AttributeError):
        Pair("a").other = 1  # type: ignore[attr-defined]


def test_the_type_checker_refuses_an_assignment() -> None:
    pair = Pair("a")
    # The check itself is `make check`: an ignore that mypy does not need fails it.
    pair.right = 3  # type: ignore[misc]
    assert pair == Pair("a", 3)
