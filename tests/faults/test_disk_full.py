"""The disk is full for longer than a replay would be safe: the ledger's own, or that of PostgreSQL's WAL."""

from __future__ import annotations

import pytest

from outbox_relay.errors import NotPossibleHere
from outbox_relay.local.small_disk import small_disk
from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.drills import disk_full
from outbox_relay.trial.processes import HOLDING_PROFILE
from tests.faults.judgement import assert_passed


@pytest.fixture
def _disk_that_may_be_filled() -> None:
    try:
        with small_disk():
            return
    except NotPossibleHere as error:
        pytest.skip(f"{error}: {error.hint}")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_disk_that_may_be_filled")
@pytest.mark.parametrize("way", disk_full.WAYS)
def test_nothing_is_sent_while_the_disk_is_full_and_everything_known_is_stored_afterwards(
    open_stage: OpenScenario, way: str
) -> None:
    # 20 that are accepted when the disk is full, and 20 that are inserted then or as soon as agents can.
    assert_passed(disk_full.fill(open_stage, way, 20, 42, HOLDING_PROFILE), runs=40, groups=4)
