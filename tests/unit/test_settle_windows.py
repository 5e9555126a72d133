"""The window that ends first is seen, whoever's it is."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from outbox_relay.ledger.records import ActionId
from reconciler.windows import Windows
from tests.unit.unknown_cases import CASE, CLAIM, KEYED, NOKEY, POLICY, WINDOW_S, after


def test_shortest_window_of_a_provider_is_the_one_that_is_shown() -> None:
    windows = Windows(POLICY)
    other = replace(CASE, claim=replace(CLAIM, action_id=ActionId(UUID(int=9))), now=after(1000))
    windows.note(CASE, KEYED, 50.0)
    windows.note(other, KEYED, 50.0)
    assert windows.least_left_s(60.0) == {"keyed": pytest.approx(WINDOW_S - POLICY.margin_s - 1000 - 10)}
    windows.settled(other)
    assert windows.least_left_s(60.0) == {"keyed": pytest.approx(WINDOW_S - POLICY.margin_s - 600 - 10)}


def test_a_window_that_ended_is_not_shown() -> None:
    windows = Windows(POLICY)
    windows.note(CASE, KEYED, 50.0)
    assert windows.least_left_s(50.0 + WINDOW_S) == {}


def test_a_provider_without_a_key_has_no_window() -> None:
    windows = Windows(POLICY)
    windows.note(CASE, NOKEY, 50.0)
    assert windows.least_left_s(50.0) == {}
