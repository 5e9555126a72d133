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
_CHOICE = "what this function forms from the event leaves no other choice"
_WEIGHED = "weigh_evidence, called next, uses up the same"
_OPEN = "n.delivery_state in ('delivery_pending', 'delivery_unknown')"
_SURVIVORS = {
    "guard_actions-6": (_OPEN, _REDACTED),
    "guard_actions-12": (_OPEN, _REDACTED),
    "guard_actions-25": ("n.receipt_state is distinct from o.receipt_state", "no event of a step moves a receipt"),
    "guard_actions-26": ("n.event_sequence <> o.event_sequence + 1", "number_change sets it before"),
    "accept_action-12": ("new.deliver_by is not null", "null is not before now either"),
    "claim_actions-11": ("q.ordering_key is null", "no other row has the same null"),
    "record_accepted-3": ("q.kind = 'dispatch'", "only a dispatch is dispatch_started"),
    "record_resolution-2": ("v_delivery is null", "no step leads to null"),
    "record_resolution-5": ("t.from_delivery = v_action.delivery_state", "finished and still queued is unknown"),
    "record_resolution-7": ("t.actor = 'reconciler'", "these events are nobody else's"),
    "record_resolution-8": ("t.to_execution = v_execution", _CHOICE),
    "record_resolution-9": ("t.to_delivery = v_delivery", _CHOICE),
    "record_resolution-12": ("e.used_at is null", "what an open action has is unused"),
    "record_resolution-15": ("e.provider_id is null", _WEIGHED),
    "record_resolution-16": ("p_provider_id is null", _WEIGHED),
    "record_resolution-17": ("e.provider_id = p_provider_id", _WEIGHED),
    "begin_replay-2": ("q.kind = 'unknown'", "only what is delivery_unknown is replayed, below"),
    "begin_replay-5": ("a.delivery_state = 'delivery_unknown'", "its queue row says the same, above"),
    "sweep_expired_claims-0": ("q.claim_token is not null", "claimed_until is set with a token only"),
}
"""What may survive: the condition, and what else holds it."""
SAMPLE = [mutant for mutant in ALL if str(mutant) not in _SURVIVORS][::7]
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
    assert killed(mutant, holds) != (str(mutant) in _SURVIVORS), f"{mutant.function} without: {mutant.dropped}"


@pytest.mark.parametrize("mutant", SAMPLE, ids=str)
def test_a_dropped_condition_is_noticed(holds: Holds, mutant: Mutant) -> None:
    judge(mutant, holds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mutant", [mutant for mutant in ALL if mutant not in SAMPLE], ids=str)
def test_every_other_dropped_condition_is_noticed(holds: Holds, mutant: Mutant) -> None:
    judge(mutant, holds)


def test_what_may_survive_is_still_that_condition() -> None:
    conditions = {str(mutant): mutant.dropped for mutant in ALL}
    named = {name: condition for name, (condition, _) in _SURVIVORS.items()}
    assert named == {name: conditions.get(name) for name in named}
