"""The figures in the documents are those of a report, and say no more than the number of trials allows."""

from __future__ import annotations

from typing import Any

from tools.drill_table import BEGIN, END, placed, short_table, table


def entry(**changes: Any) -> dict[str, Any]:
    given = {"drill": "zombie", "profile": "holding", "asked": 20, "contract_type": "A", "runs": 20, "seed": 42}
    return given | {"duplicates": 0, "lost": 0, "undecided_without_owner": 0, "passed": True} | changes


def report(*drills: dict[str, Any], planted: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"drills": list(drills), "planted_bugs": {"list": list(planted)}}


def test_zero_failures_say_below_three_in_n_and_nothing_more() -> None:
    figures = table([report(entry(), entry(contract_type="D", runs=10))])
    assert "| `zombie` | holding | 20 | A D | 30 | 0 | 0 | 0 | 10 % (0 of 30) |" in figures


def test_a_drill_that_failed_gets_no_bound() -> None:
    assert "%" not in table([report(entry(duplicates=1))]).splitlines()[-1]
    assert "did not pass" in table([report(entry(), entry(passed=False))])


def test_a_bug_that_nobody_caught_is_named_as_such() -> None:
    catches = (
        {"name": "a", "caught": True, "caught_by": "zombie"},
        {"name": "b", "caught": False, "caught_by": "zombie"},
    )
    figures = table([report(entry(), planted=catches)])
    assert "1 of 2 caught" in figures
    assert "| a | drill `zombie` |\n| b | **nobody** |" in figures


def test_in_short_a_drill_is_one_row_over_all_its_timings() -> None:
    figures = short_table([report(entry(), entry(profile="default", runs=10), entry(drill="other", lost=1))])
    assert "| `zombie` | 30 | 0 | 10 % (0 of 30) |" in figures
    assert "| `other` | 20 | 1 | - |" in figures
    assert "did not pass" in short_table([report(entry(), entry(passed=False))])


def test_only_what_stands_between_the_marks_is_written() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert placed(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
