"""No condition of a function of the ledger may be dropped unnoticed.

Each mutant is a function, or the views, without one condition, put into a ledger of its own; the tests that hold the
function are then called there, until one fails. Of every function some mutants run always, which ones changes with its
text; all of them run with `-m exhaustive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from zlib import crc32

import pytest

from tests.ledger.conftest import cloned
from tests.ledger.factories import Stage
from tests.ledger.mutant_checks import CHECKS
from tests.ledger.mutant_checks_of_reading import Check
from tests.ledger.mutant_survivors import SURVIVORS
from tests.ledger.mutants import Mutant, functions, mutants
from tests.plugins.postgres import PostgresServer

_FIELDS = "only names fields"
_FORMULA = "only a formula"
_ONE_ROW = "reads the one row of the ledger"
_STATEMENT = "one unconditional statement"
WITHOUT_CONDITION = {
    "as_evidence": _FIELDS,
    "derived_wire_key": _FORMULA,
    "enqueue_json": "only calls the one for text",
    "event_data": _FIELDS,
    "intent_fingerprint": _FORMULA,
    "ledger_identity": _ONE_ROW,
    "now": _FORMULA,
    "probe_write": _STATEMENT,
    "record_evidence": _STATEMENT,
    "refuse_change": "always refuses",
    "rfc3339": _FORMULA,
    "schema_version": "the newest of all rows",
}
"""Functions that hold none: why."""
ALL = [mutant for function in CHECKS for mutant in mutants(function)]
PER_SAMPLE = 30
"""Of so many conditions of a function one more is sampled."""
PATIENCE = b"""
set lock_timeout = '5s';
do $$ begin
  execute format('alter database %I set lock_timeout = %L', current_database(), '5s');
  execute format('alter database %I set statement_timeout = %L', current_database(), '30s');
end $$"""
"""A mutant may wait for a lock that the function passes, or run for ever."""


def may_survive(mutant: Mutant) -> bool:
    return mutant.condition in SURVIVORS.get(mutant.function, {})


def sampled() -> list[Mutant]:
    """Some of each function, by its text: an edit of a function is judged by others of its conditions."""
    chosen = []
    for function in CHECKS:
        held = [mutant for mutant in mutants(function) if not may_survive(mutant)]
        count = 1 + len(held) // PER_SAMPLE if held else 0
        start = crc32("".join(mutant.condition for mutant in held).encode())
        chosen += [held[(start + n * len(held) // count) % len(held)] for n in range(count)]
    return chosen


SAMPLE = sampled()
Holds = Callable[[Check, str], bool]


@pytest.fixture(scope="module")
def holds(postgres_server: PostgresServer, ledger_template: str) -> Holds:
    """Tell whether a check passes in a new ledger after this statement."""

    @cache
    def check_holds(check: Check, statement: str) -> bool:
        with cloned(postgres_server, ledger_template) as database:
            stage = Stage(database)
            stage.owner.execute(PATIENCE)
            if statement:
                stage.owner.execute(statement.encode())
            try:
                stage.declare()
                check(stage)
            except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever it says, it noticed
                return False
            return True

    return check_holds


def killed(mutant: Mutant, holds: Holds) -> Check | None:
    """The check that noticed."""
    return next((check for check in CHECKS[mutant.function] if not holds(check, mutant.definition)), None)


@pytest.mark.parametrize("mutant", SAMPLE, ids=str)
def test_a_dropped_condition_is_noticed(holds: Holds, mutant: Mutant) -> None:
    assert killed(mutant, holds), f"{mutant.function} without: {mutant.condition}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("mutant", ALL, ids=str)
def test_every_dropped_condition_is_noticed_or_known_to_be_held_elsewhere(holds: Holds, mutant: Mutant) -> None:
    noticed = killed(mutant, holds)
    assert (noticed is None) == may_survive(mutant), f"{mutant.function} without: {mutant.condition}"
    assert noticed is None or holds(noticed, ""), f"{noticed} fails in an unchanged ledger"


def test_every_function_is_held_or_has_nothing_to_hold() -> None:
    assert {*CHECKS, *WITHOUT_CONDITION} == functions() | {"views"}
    assert not CHECKS.keys() & WITHOUT_CONDITION.keys()
    assert {name: mutants(name) for name in WITHOUT_CONDITION} == {name: [] for name in WITHOUT_CONDITION}
    assert not [name for name in CHECKS if not mutants(name)], "these hold no condition any more"


def test_what_may_survive_is_still_a_condition() -> None:
    conditions = {function: {mutant.condition for mutant in mutants(function)} for function in SURVIVORS}
    assert {function: set(named) - conditions[function] for function, named in SURVIVORS.items()} == {
        function: set() for function in SURVIVORS
    }
