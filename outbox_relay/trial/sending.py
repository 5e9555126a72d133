"""Relays, one after the other, until a whole batch has been sent: for drills that lose hundreds of answers together.

The first troubles open a relay's breaker, on a loaded machine before the last actions are claimed; what is left would
then wait for probes. The next relay knows nothing of the trouble.
"""

from __future__ import annotations

from outbox_relay.errors import ConditionNotMet
from outbox_relay.trial.processes import HttpProgram, wait_until
from outbox_relay.trial.scenario import Scenario

SLOTS = "200"
RELAYS_MAX = 20
STOP_S = 60.0


def send_all(scenario: Scenario, name: str) -> HttpProgram:
    """Return the relay that has sent the last of what is in the ledger; the others have ended.

    An attempt that could not even connect is no send: it is tried again.
    """
    for nth in range(RELAYS_MAX):
        relay = scenario.start_relay(f"{name}-{nth}", OUTBOX_SLOTS=SLOTS)
        try:
            wait_until(
                lambda: not scenario.count("a.delivery_state = 'delivery_pending'"),
                timeout_s=3 * scenario.profile.deadline_s,
                what=f"everything to be sent by {relay.name}",
                poll_s=0.1,
            )
        except ConditionNotMet:
            relay.terminate(deadline_s=STOP_S)
        else:
            return relay
    raise ConditionNotMet(f"{RELAYS_MAX} relays have not sent everything")
