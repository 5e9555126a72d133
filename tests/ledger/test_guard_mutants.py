"""No condition of a function that changes an action may be dropped unnoticed.

Each mutant is the function without one `and` or `or` condition, put into a ledger of its own; the tests that hold the
function are then called there, until one fails. Every seventh mutant runs always, all of them with `-m exhaustive`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.ledger.conftest import cloned
from tests.ledger.factories import Stage
from tests.ledger.mutant_checks import CHECKS, Check
from tests.ledger.mutants import Mutant, mutants
from tests.plugins.postgres import PostgresServer

ALL = [mutant for function in CHECKS for mutant in mutants(function)]
_REDACTED = "no open action can have redacted_at: its own clause refuses that"
_OWN_STEPS = "what this function forms from the event leaves no other choice"
_STARTED = "a dispatch under a token is dispatch_started, and nothing else is"
_SECOND_FENCE = "guard_actions refuses the step with the same code"
_WEIGHED = "weigh_evidence, called next, uses up the same"
SURVIVORS = {
    ("record_resolution", "t.to_execution = v_execution"): _OWN_STEPS,
    ("record_resolution", "e.provider_id is null"): _WEIGHED,
}
"""What may survive, and why: the function and the condition, and what else holds it."""
SAMPLE = [mutant for mutant in ALL if (mutant.function, mutant.dropped) not in SURVIVORS][::7]
Holds = Callable[[Check, str], bool]


@pytest.fixture(scope="module")
def holds(postgres_server: PostgresServer, ledger_template: str) -> Holds:
    """Tell whether a check passes in a new ledger after this statement."""

    @cache
    def check_holds(check: Check, statement: str) -> bool:
        with cloned(postgres_server, ledger_template) as database:
            stage = Stage(database)
            stage.declare()
            if statement:
                stage.owner.execute(statement.encode())
            try:
                check(stage)
            except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever it says, it noticed
                return False
            return True

    return check_holds


def killed(mutant: Mutant, holds: Holds) -> bool:
    for check in CHECKS[mutant.function]:
        if not holds(check, mutant.definition):
            assert holds(check, ""), f"{check} fails in an unchanged ledger"
            return True
    return False


def judge(mutant: Mutant, holds: Holds) -> None:
    survivor = (mutant.function, mutant.dropped) in SURVIVORS
    assert killed(mutant, holds) != survivor, f"{mutant.function} without: {mutant.dropped}"


@pytest.mark.parametrize("mutant", SAMPLE, ids=str)
def test_a_dropped_condition_is_noticed(holds: Holds, mutant: Mutant) -> None:
    judge(mutant, holds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mutant", [mutant for mutant in ALL if mutant not in SAMPLE], ids=str)
def test_every_other_dropped_condition_is_noticed(holds: Holds, mutant: Mutant) -> None:
    judge(mutant, holds)


def test_what_may_survive_is_still_there() -> None:
    assert set(SURVIVORS) <= {(mutant.function, mutant.dropped) for mutant in ALL}
