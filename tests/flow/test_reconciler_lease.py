"""The shortest lease that the settings accept must be long enough to resolve something."""

from __future__ import annotations

from outbox_relay.settings import LEASE_MARGIN_S
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import Profile
from tests.plugins.processes import SetStage

DEADLINE_S = 2.0
SHORTEST = Profile(
    "shortest-lease", deadline_s=DEADLINE_S, lease_s=DEADLINE_S + LEASE_MARGIN_S, sweep_s=0.25, shortens_contracts=True
)


def test_the_shortest_accepted_lease_does_not_starve_the_reconciler(scenario: SetStage) -> None:
    stage = scenario("resend", "github", profile=SHORTEST)
    stage.start_reconciler()
    stage.start_relay()
    for provider, place in stage.providers.items():
        place.spoil(Fault.ACCEPT_THEN_DROP, key=f"{provider}:1")
        stage.add(provider, [f"{provider}:1"])
    stage.wait_settled(timeout_s=60)
    assert {each.delivery_state for each in stage.standings()} == {"reconciled_confirmed"}
