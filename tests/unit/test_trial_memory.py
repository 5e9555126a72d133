"""What a simulated provider remembers, and for how long."""

from __future__ import annotations

import pytest

from outbox_relay.trial.faults import Fault, FaultPlan, FaultRule
from outbox_relay.trial.memory import Answer, KeyMemory, Scope, Standing

KEY: Scope = ("account", "operation", "key")
OTHER_ACCOUNT: Scope = ("other", "operation", "key")
ANSWER = Answer(200, b"{}")


def known(memory: KeyMemory, *, started: float = 0, finished: float = 0) -> KeyMemory:
    memory.begin(KEY, "body", started)
    memory.finish(KEY, ANSWER, finished)
    return memory


@pytest.mark.parametrize(("from_completion", "ends"), [(False, 100), (True, 130)])
def test_the_window_counts_from_where_the_contract_says(from_completion: bool, ends: float) -> None:
    memory = known(KeyMemory(retention_s=100, from_completion=from_completion), finished=30)
    assert memory.begin(KEY, "body", ends - 1) == (Standing.REPLAYED, ANSWER)
    assert memory.begin(KEY, "body", ends) == (Standing.FRESH, None)


def test_a_key_is_remembered_for_ever_where_no_end_is_published() -> None:
    assert known(KeyMemory(retention_s=None)).begin(KEY, "body", 1e9)[0] is Standing.REPLAYED


def test_keys_of_two_accounts_are_apart() -> None:
    assert known(KeyMemory(retention_s=None)).begin(OTHER_ACCOUNT, "body", 1)[0] is Standing.FRESH


def test_another_body_is_a_mismatch_unless_the_key_is_natural() -> None:
    assert known(KeyMemory(retention_s=None)).begin(KEY, "other", 1)[0] is Standing.MISMATCH
    assert known(KeyMemory(retention_s=None, ignores_body=True)).begin(KEY, "other", 1)[0] is Standing.REPLAYED


def test_a_key_whose_work_is_not_done_is_in_progress_and_can_be_forgotten() -> None:
    memory = KeyMemory(retention_s=100)
    memory.begin(KEY, "body", 0)
    assert memory.begin(KEY, "body", 1)[0] is Standing.IN_PROGRESS
    memory.forget(KEY)
    assert memory.begin(KEY, "body", 2)[0] is Standing.FRESH


def test_one_seed_gives_the_same_faults_again() -> None:
    def drawn() -> list[bool]:
        plan = FaultPlan(seed=7)
        plan.add(FaultRule(fault=Fault.HANG, probability=0.3, times=None))
        return [plan.choose(kind="operation", ref=str(number)) is not None for number in range(200)]

    assert drawn() == drawn()
    assert 30 < sum(drawn()) < 90


def test_a_rule_hits_its_kind_key_and_attempt_only() -> None:
    plan = FaultPlan(seed=1)
    plan.add(FaultRule(fault=Fault.REFUSE, key_prefix="a/", nth=2, times=None))
    hits = [plan.choose(kind="operation", ref=ref) is not None for ref in ("a/1", "a/1", "b/1", "a/2", "a/1", "a/2")]
    assert hits == [False, True, False, False, False, True]
    assert plan.choose(kind="lookup", ref=None) is None
