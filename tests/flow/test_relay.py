"""The relay as a process, on the real ledger and against a provider with its own book. Without Kafka."""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.trial.processes import wait_until
from outbox_relay.trial.scenario import Scenario

SetStage = Callable[..., Scenario]


def keys(count: int, name: str = "deploy") -> list[str]:
    return [f"{name}:{number:04}" for number in range(count)]


def confirmed(stage: Scenario, count: int, *, timeout_s: float = 20) -> None:
    stage.wait_for_count(
        count, "delivery_state = 'delivery_confirmed'", timeout_s=timeout_s, what=f"{count} acceptances"
    )


def test_a_committed_action_is_sent_once_and_its_acceptance_written_back(scenario: SetStage) -> None:
    stage = scenario("resend")
    relay = stage.start_relay()
    stage.add("resend", ["deploy:42:notify"])
    confirmed(stage, 1)
    book = stage.providers["resend"].book
    (effect,) = book.effects()
    (standing,) = stage.standings()
    assert standing.provider_id == effect.provider_id
    assert (standing.attempts, standing.resolution) == (1, "response")
    (line,) = relay.events("attempt")
    assert line["finding"] == "accepted"
    assert relay.terminate() == 0
