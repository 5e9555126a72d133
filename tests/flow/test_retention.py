"""The reconciler as a process forgets what its settings say, says how much, and leaves what is open alone."""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.trial.processes import wait_until
from outbox_relay.trial.scenario import Scenario
from tests.ledger.factories import Stage
from tests.plugins.postgres import TrialDatabase

WAIT_S = 60.0
PROVIDER = "resend"


def test_the_reconciler_forgets_in_time_and_the_ledger_still_adds_up(
    scenario: Callable[..., Scenario], ledger: TrialDatabase
) -> None:
    played = scenario(PROVIDER)
    relay = played.start_relay()
    played.add(PROVIDER, [f"old/{number}" for number in range(5)])
    played.wait_settled(prefix="old/", timeout_s=WAIT_S)
    relay.terminate()
    played.add(PROVIDER, ["open/1"])
    stage = Stage(ledger)
    stage.advance(3 * 86_400)
    reconciler = played.start_reconciler(OUTBOX_REDACT_AFTER_DAYS="1", OUTBOX_EVENTS_RETENTION_DAYS="1")
    forgotten = "redacted_at is not null and history_deleted_at is not null and payload = '{}'"
    played.wait_for_count(5, forgotten, timeout_s=WAIT_S, what="five forgotten actions")
    series = 'outbox_swept_total{kind="history"}'
    wait_until(lambda: reconciler.metrics().get(series) == 5.0, timeout_s=WAIT_S, what="the count")
    assert stage.one("select count(*) from outbox.action_events") == 1, "the open action's"
    assert stage.one("select count(*) from outbox.keys") == 6
    assert stage.one("select payload <> '{}' from outbox.outbound_actions where idempotency_key = 'open/1'")
    assert stage.one("select (outbox.audit_actions(null, 100)).findings") == []
    assert stage.rows("operator", "select * from outbox.audit_totals()") == []
    assert reconciler.terminate() == 0
