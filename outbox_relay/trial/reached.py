"""I10: which branches the runs of a drill have reached: what was decided about unknowns, how answers were taken.

Read from the programs' own logs afterwards. A branch that no run reaches is shown by no run: each has a drill that must
reach it, or a reason why none does and a test that shows it instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

FIELDS: Mapping[str, str] = {"decided": "decision", "attempt": "finding", "lookup": "answer"}
"""Log line: the field that names the branch."""

EXPECTED: Mapping[str, frozenset[str]] = {
    "deploy-42-notify": frozenset({"decision: wait in_flight"}),
    "lost-answer": frozenset(
        {"decision: look", "decision: look, empty is proof", "decision: replay", "answer: absent", "answer: found"}
        | {"relay attempt: accepted", "relay attempt: unknown", "reconciler attempt: accepted"}
    ),
    "zombie": frozenset({"decision: use late_acceptance"}),
    "window-expired": frozenset({"decision: review window_over", "decision: review window_unpublished"}),
    "lookup-trouble": frozenset({"decision: wait settling", "answer: inconclusive"}),
    "key-answers": frozenset(
        {f"decision: review {each}" for each in ("key_mismatch", "replay_refused", "replayed_server_error")}
        | {f"reconciler attempt: {each}" for each in ("in_progress", "mismatch", "refused", "unknown")}
        | {f"relay attempt: {each}" for each in ("in_progress", "mismatch")}
    ),
    "changed-place": frozenset(
        f"decision: review {each}" for each in ("account_changed", "base_url_changed", "account_not_live")
    ),
    "cancelled-unknown": frozenset(
        f"decision: review {each}"
        for each in ("cancel_requested", "deadline_passed", "lookup_not_proof", "nothing_to_ask")
    ),
}
"""By drill, what it must reach: every branch that is not in NOT_DRILLED, once."""

_DECIDE, _MEANS, _RELAY = "tests/unit/test_decide.py", "tests/unit/test_decide_conclude.py", "tests/flow/test_relay.py"
_NOT_SETTLED, _REPAIR = "test_what_nothing_can_settle_goes_to_a_person", "test_no_trusted_answer_leaves_it_unknown"
NOT_DRILLED: Mapping[str, str] = {
    "decision: use receipt_arrived": f"{_DECIDE}::test_receipt_settles_under_its_own_name",
    "decision: wait nothing_to_resolve": f"{_DECIDE}::test_row_handed_out_for_evidence_that_is_gone_is_given_back",
    "decision: review contract_changed": f"{_DECIDE}::test_no_replay_without_each_of_its_conditions",
    "decision: review replays_exhausted": f"{_DECIDE}::test_no_replay_without_each_of_its_conditions",
    **{
        f"decision: review {each}": f"{_DECIDE}::{_NOT_SETTLED}"
        for each in ("account_missing", "contract_missing", "operation_missing", "lookups_exhausted")
    },
    "decision: review lookup_window_over": f"{_DECIDE}::{_NOT_SETTLED}",
    "decision: review unresolved_too_long": f"{_DECIDE}::{_NOT_SETTLED}",
    "relay attempt: refused": f"{_RELAY}::test_a_refusal_is_final",
    "relay attempt: no_effect": f"{_RELAY}::test_a_provider_that_is_down_costs_no_action_and_no_hold",
    "relay attempt: held": "tests/unit/test_classify.py::test_an_attempt_proves_no_more_than_it_showed",
    "relay attempt: released": "tests/unit/test_attempt_lease.py::"
    "test_a_lease_that_runs_out_while_the_connection_is_made_lets_nothing_leave",
    "reconciler attempt: no_effect": f"{_MEANS}::{_REPAIR}_and_replayable",
    "reconciler attempt: released": f"{_MEANS}::{_REPAIR}_and_replayable",
    "reconciler attempt: held": f"{_MEANS}::test_held_or_redirected_replay_asks_a_person_and_goes_on_after_the_repair",
}
"""What no lost answer leads to by itself (a configuration that went away, days without an end, our own refusals), and
the test that shows it."""


def missed_by(drill: str, reached: Iterable[str]) -> list[str]:
    """What a run of a drill, of ten actions a group and more, should have reached and has not."""
    return sorted(EXPECTED.get(drill, frozenset()) - set(reached))


def branches_in(folder: Path) -> set[str]:
    """Every branch that the programs of a scenario logged, such as `decision: replay` or `relay attempt: accepted`."""
    return {branch for log in folder.glob("*.log") for branch in _branches(log)}


def _branches(log: Path) -> Iterable[str]:
    marks = [f'"event": "{event}"'.encode() for event in FIELDS]
    with log.open("rb") as lines:
        for raw in lines:
            if not any(mark in raw for mark in marks):
                continue
            try:
                line = json.loads(raw)
            except ValueError:
                continue  # a line that a killed program has not finished
            event = str(line["event"])
            where = f"{line['program']} " if event == "attempt" else ""
            yield f"{where}{FIELDS[event].replace('finding', 'attempt')}: {line[FIELDS[event]]}"
