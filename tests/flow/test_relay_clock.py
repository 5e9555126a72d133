"""The database's clock alone decides about leases: a relay's own may be wrong by minutes, either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile, wait_until
from tests.plugins.processes import SetStage

ROOT = Path(__file__).resolve().parents[2]
HOLDING = Profile("holding", deadline_s=3, lease_s=6, sweep_s=0.25, shortens_contracts=True)
# Python runs a module of this name at its start: the whole program, and no other, sees another time of day.
WRONG_CLOCK = """
import time
_time, _clock = time.time, time.clock_gettime
time.time = lambda: _time() + ({off_s})
time.clock_gettime = lambda clock: _clock(clock) + (({off_s}) if clock == time.CLOCK_REALTIME else 0)
"""


@pytest.mark.parametrize("off_s", [-600, 600], ids=["ten minutes behind", "ten minutes ahead"])
def test_a_relay_whose_clock_is_wrong_by_minutes_holds_its_claims_as_long_as_the_lease(
    scenario: SetStage, tmp_path: Path, off_s: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK.format(off_s=off_s))
    stage = scenario("resend", profile=HOLDING)
    provider = stage.providers["resend"]
    provider.spoil(Fault.ACCEPT_THEN_HANG, nth=1, times=None)
    stage.start_relay(PYTHONPATH=f"{tmp_path}:{ROOT}")
    stage.add("resend", ["deploy:1", "deploy:2"])
    wait_until(lambda: len(provider.announced("accepted")) == 2, timeout_s=45, what="both to be accepted")
    left = stage.count(
        "exists (select from outbox.work_queue q where q.action_id = a.action_id"
        " and q.claimed_until between clock_timestamp() and clock_timestamp() + %s * interval '1 s')",
        HOLDING.lease_s,
    )
    assert left == 2, "a claim lasts as long as the lease, by the database's clock"
