"""What is forgotten, and when: payloads first, history later, keys never, and nothing that is open."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from outbox_relay.states import STATES, TERMINAL
from tests.ledger.factories import PAYLOAD, Row, Stage, put_into

DAY = 86_400
QUOTE = {
    "kind": "response",
    "proves": "refusal",
    "reason": "http_422",
    "excerpt": "a@example.com is no address",
    "headers": {"x-to": "a@example.com"},
    "url": "https://mail.example.com/a@example.com",
    "status": 422,
}


def redact(stage: Stage, days: int = 30, *, limit: int = 500) -> int:
    """Walk to the end; how many were redacted."""
    return walk(stage, "redacted", f"outbox.redact_settled({days}, %s, {limit})")


def forget(stage: Stage, days: int = 90, redacted_days: int = 60, *, limit: int = 500) -> int:
    """Walk to the end; whose history was deleted."""
    return walk(stage, "deleted", f"outbox.delete_history({days}, {redacted_days}, %s, {limit})")


def walk(stage: Stage, count: str, call: str) -> int:
    changed, after = 0, None
    for _ in range(100):
        step = stage.as_("reconciler").execute(f"select * from {call}".encode(), [after]).fetchone()
        assert step is not None
        changed += int(step[count])
        after = step["looked_until"]
        if after is None:
            return changed
    raise AssertionError("a walk must end")


def events(stage: Stage, action: UUID) -> int:
    found: int = stage.one("select count(*) from outbox.action_events where action_id = %s", action)
    return found


def evidence(stage: Stage, action: UUID) -> list[Row]:
    return stage.rows("owner", "select * from outbox.evidence where action_id = %s", action)


def test_everything_settled_is_redacted_in_time_and_nothing_open(stage: Stage) -> None:
    actions = {state: put_into(stage, state) for state in STATES}
    assert redact(stage) == 0, "nothing is old enough"
    stage.advance(31 * DAY)
    before = {state: stage.everything(actions[state]) for state in STATES if state not in TERMINAL}
    assert redact(stage) == len(TERMINAL)
    assert redact(stage) == 0
    for state in STATES:
        facts = stage.facts(actions[state])
        assert (facts["payload"], facts["recipient"]) == (({}, None) if state in TERMINAL else (PAYLOAD, PAYLOAD["to"]))
        assert (facts["redacted_at"] is not None) == (state in TERMINAL)
        assert events(stage, actions[state]) == facts["event_sequence"]
    assert before == {state: stage.everything(actions[state]) for state in before}


def test_the_age_counts_from_the_last_change(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    stage.advance(20 * DAY)
    assert stage.resolve(action, "found", provider_id="id-1") == "applied"
    stage.advance(40 * DAY)
    assert redact(stage) == 0
    stage.advance(51 * DAY)
    assert redact(stage) == 1


def test_after_redaction_the_intent_is_still_known_and_another_still_refused(stage: Stage) -> None:
    stage.insert("k", content_version="v1")
    stage.cancel(stage.one("select action_id from outbox.keys"))
    stage.advance(400 * DAY)
    assert (redact(stage), forget(stage, redacted_days=0)) == (1, 1)
    intent = {"provider": "mail", "operation": "send", "idempotency_key": "k", "content_version": "v1"}
    assert stage.insert_as("agent", intent | {"payload": PAYLOAD}) == [], "no second row, and no error"
    same = "select created from outbox.enqueue('mail', 'send', 'k', %s::jsonb, content_version => 'v1')"
    assert stage.one(same, '{"to": "a@example.com", "text": "hello"}', role="agent") is False
    for other, differs in (
        ({"payload": PAYLOAD | {"text": "bye"}}, "recipient or payload"),
        ({"payload": PAYLOAD | {"to": "b@example.com"}}, "recipient or payload"),
        ({"payload": PAYLOAD, "content_version": "v2"}, "content_version"),
    ):
        with pytest.raises(psycopg.Error) as refused:
            stage.insert_as("agent", intent | other)
        assert refused.value.sqlstate == "OB001"
        assert f'"differs" : "{differs}"' in (refused.value.diag.message_detail or "")
    assert stage.one("select count(*) from outbox.keys") == 1


def test_what_evidence_quotes_goes_with_the_payload_and_what_it_proves_stays(stage: Stage) -> None:
    action = stage.attempt("refused", evidence=QUOTE)
    stage.advance(31 * DAY)
    assert redact(stage) == 1
    kept = evidence(stage, action)[0]
    assert (kept["excerpt"], kept["headers"], kept["url"]) == (None, {}, None)
    assert (kept["kind"], kept["proves"], kept["status"]) == ("response", "refusal", 422)


def test_an_open_review_keeps_what_its_reader_must_see(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="id-1")
    stage.late_acceptance(action, "id-2")
    review = stage.review_of(action)
    stage.advance(400 * DAY)
    assert redact(stage) == 0
    stage.decide(review, "noted")
    assert redact(stage) == 1


def test_what_comes_up_after_redaction_keeps_its_history_until_it_is_closed(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="id-1")
    stage.advance(31 * DAY)
    assert redact(stage) == 1
    stage.late_acceptance(action, "id-2")
    stage.advance(400 * DAY)
    assert forget(stage) == 0
    stage.decide(stage.review_of(action), "noted")
    assert forget(stage) == 1


def test_history_goes_after_the_payload_and_leaves_a_note(stage: Stage) -> None:
    settled = stage.attempt("refused", evidence=QUOTE)
    unknown = stage.attempt("response_lost", evidence=QUOTE | {"kind": "no_response", "proves": "nothing"})
    stage.advance(31 * DAY)
    assert (redact(stage), forget(stage), forget(stage, redacted_days=0)) == (1, 0, 0)
    stage.advance(89 * DAY)
    assert forget(stage) == 0
    before = stage.everything(unknown)
    stage.advance(92 * DAY)
    assert (forget(stage), forget(stage)) == (1, 0)
    assert (events(stage, settled), evidence(stage, settled)) == (0, [])
    assert stage.facts(settled)["history_deleted_at"] is not None
    assert stage.state(settled).delivery == "delivery_rejected"
    assert stage.everything(unknown) == before


def test_a_walk_goes_in_bounded_steps_past_what_is_exempt(stage: Stage) -> None:
    open_ones = [stage.insert(not_before="2999-01-01") for _ in range(7)]
    settled = [stage.attempt("accepted", provider_id=str(number)) for number in range(10)]
    stage.advance(400 * DAY)
    step = stage.rows("reconciler", "select * from outbox.redact_settled(30, null, 3)")[0]
    assert step["redacted"] == 0
    assert step["looked_until"] is not None
    assert redact(stage, limit=3) == len(settled)
    assert forget(stage, redacted_days=0, limit=3) == len(settled)
    assert [stage.facts(action)["payload"] for action in open_ones] == [PAYLOAD] * 7


def test_two_walkers_do_not_wait_for_each_other(stage: Stage) -> None:
    stage.attempt("accepted", provider_id="1")
    stage.advance(31 * DAY)
    with stage.as_("reconciler").transaction():
        assert redact(stage) == 1
        assert redact(Stage(stage.ledger)) == 0


@pytest.mark.parametrize("days", ["0", "null"])
@pytest.mark.parametrize("call", ["redact_settled({}, null, 10)", "delete_history({}, 0, null, 10)"])
def test_less_than_a_day_is_refused(stage: Stage, call: str, days: str) -> None:
    assert stage.refusal("reconciler", f"select * from outbox.{call.format(days)}") == "OB011"


def test_only_what_is_settled_and_noted_can_be_forgotten_even_by_the_owner(stage: Stage) -> None:
    settled, unknown = stage.attempt("accepted", provider_id="1"), stage.attempt("response_lost")
    change = "update outbox.outbound_actions set {} where action_id = '{}'"
    assert stage.refusal("owner", "delete from outbox.action_events") == "OB002"
    for forged in ("recipient = null", "recipient = 'b', redacted_at = now()", "history_deleted_at = now()"):
        assert stage.refusal("owner", change.format(forged, settled)) == "OB002", forged
    for forged in ("recipient = null, redacted_at = now()", "redacted_at = now()"):
        assert stage.refusal("owner", change.format(forged, unknown)) == "OB002", forged
    stage.advance(31 * DAY)
    assert redact(stage) == 1
    for forged in ("redacted_at = null", "redacted_at = now()", "recipient = 'b'", 'payload = \'{"to": "b"}\''):
        assert stage.refusal("owner", change.format(forged, settled)) == "OB002", forged
    assert stage.refusal("owner", change.format("history_deleted_at = now()", settled)) is None
