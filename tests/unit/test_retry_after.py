"""How long a provider wants to be left alone, in every form it has been seen to say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.attempt.retry_after import read_reset, read_retry_after
from outbox_relay.providers.exchange import Answer

DATE = "Mon, 30 Nov 2026 12:00:00 GMT"


def answer(*values: str, date: str | None = DATE, **more: str) -> Answer:
    headers = {"retry-after": values} | ({"date": (date,)} if date else {})
    headers |= {name.replace("_", "-"): (value,) for name, value in more.items()}
    return Answer(429, headers, b"", complete=True)


@pytest.mark.parametrize(
    ("values", "wait"),
    [
        (("120",), 120.0),
        ((" 120 ",), 120.0),
        (("0",), 0.0),
        (("1.5",), 1.5),
        (("9" * 400,), 3600.0),
        ((f"1{'0' * 30}",), 3600.0),
        (("Mon, 30 Nov 2026 12:02:00 GMT",), 120.0),
        (("Monday, 30-Nov-26 12:02:00 GMT",), 120.0),
        (("Mon, 30 Nov 2026 11:00:00 GMT",), 0.0),
        (("Fri, 31 Dec 9999 23:59:59 GMT",), 3600.0),
        (("Sat, 01 Jan 10000 00:00:00 GMT",), 3600.0),
        (("Sat, 01 Jan 99999999999999999999 00:00:00 GMT",), 3600.0),
        (("-5",), None),
        (("",), None),
        (("soon",), None),
        (("nan",), None),
        (("inf",), None),
        (("1e9",), None),
        (("١٢",), None),
        (("Mon, 99 Nov 2026 12:02:00 GMT",), None),
        (("a" * 100_000,), None),
        (("5", "30"), 30.0),
        (("soon", "30"), 30.0),
        ((), None),
    ],
)
def test_every_form_is_read_or_left_to_the_backoff(values: Any, wait: Any) -> None:
    assert read_retry_after(answer(*values)) == wait


def test_a_date_without_the_answers_own_date_is_left_to_the_backoff() -> None:
    """The relay's clock has no say."""
    assert read_retry_after(answer("Mon, 30 Nov 2026 12:02:00 GMT", date=None)) is None


def test_the_cap_is_the_callers() -> None:
    assert read_retry_after(answer("7200"), cap_s=60) == 60


@pytest.mark.parametrize(
    ("value", "wait"),
    [("1796040060", 60.0), ("1796030000", 0.0), ("9" * 15, 3600.0), ("9" * 400, None), ("x", None), ("-1", None)],
)
def test_a_reset_instant_is_measured_against_the_answers_date(value: Any, wait: Any) -> None:
    assert read_reset(answer(x_ratelimit_reset=value), "x-ratelimit-reset") == wait


@given(st.lists(st.text(max_size=60), max_size=3), st.one_of(st.none(), st.text(max_size=60)))
def test_no_text_makes_it_raise_or_wait_outside_the_bounds(values: Any, date: Any) -> None:
    wait = read_retry_after(answer(*values, date=date))
    assert wait is None or 0 <= wait <= 3600
