"""Time that passes at once, at the providers and in the ledger alike: for windows of a day, settle times of minutes.

The ledger reads its clock in one place, `outbox.now()`, which is replaced here in the trial's own database. Nothing
that ships can be told another time.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import sql

from outbox_relay.errors import ConditionNotMet
from outbox_relay.trial.processes import wait_until
from outbox_relay.trial.scenario import Scenario

UNCLAIMED_WITHIN_S = 120.0
QUIET_S = 2.0
"""So long the programs get to do what is due before more time passes."""

LATER = sql.SQL(
    "create or replace function outbox.now() returns timestamptz language sql volatile"
    " as $$ select clock_timestamp() + make_interval(secs => {seconds}) $$"
)


class Calendar:
    """The date of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._ahead_s = 0.0

    def turn(self, seconds: float) -> None:
        """Let so much time pass while nobody holds a claim: a leap must not look like a worker that was frozen."""
        with psycopg.connect(self._scenario.ledger.dsn("owner")) as connection:
            wait_until(
                lambda: self._turned(connection, seconds),
                timeout_s=UNCLAIMED_WITHIN_S,
                what="a moment without claims",
                poll_s=0.05,
            )

    def turn_until(self, condition: Callable[[], bool], *, step_s: float, timeout_s: float, what: str) -> None:
        """Let time pass, a step at a time and as few as possible, until a condition holds. `timeout_s` is real time."""
        steps = max(1, round(timeout_s / QUIET_S))
        for _ in range(steps):
            try:
                wait_until(condition, timeout_s=QUIET_S, what=what, poll_s=0.1)
            except ConditionNotMet:
                self.turn(step_s)
            else:
                return
        wait_until(condition, timeout_s=QUIET_S, what=what, poll_s=0.1)

    def _turned(self, connection: psycopg.Connection, seconds: float) -> bool:
        with connection.transaction():
            # Nobody can claim until the clocks are set.
            connection.execute("lock table outbox.work_queue in share row exclusive mode")
            row = connection.execute("select exists (select from outbox.work_queue where claim_token is not null)")
            if row.fetchone() == (True,):
                return False
            connection.execute(LATER.format(seconds=sql.Literal(self._ahead_s + seconds)))
            for place in self._scenario.providers.values():
                place.change(advance_s=seconds)
            self._ahead_s += seconds
        return True
