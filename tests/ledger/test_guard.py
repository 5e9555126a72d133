"""What no UPDATE, DELETE or TRUNCATE can do, not even the owner's: the second fence behind the functions and grants."""

from __future__ import annotations

from tests.ledger.factories import PAYLOAD, Stage

FORGERIES = (
    "payload = '{}', redacted_at = now()",
    'payload = \'{"to": "thief@example.com"}\', redacted_at = now()',
    'payload = \'{"to": "thief@example.com"}\'',
    "recipient = 'thief@example.com'",
    "idempotency_key = 'other'",
    "provider = 'other'",
    "operation = 'other'",
    "account = 'other'",
    "content_version = '2'",
    "ordering_key = 'x'",
    "deliver_by = 'infinity'",
    "not_before = null, created_by = 'thief'",
    "created_at = now() - interval '1 year'",
    "action_id = gen_random_uuid()",
    "wire_key = 'other'",
    "base_url = 'https://thief.example.com'",
    "account_identity = 'thief'",
    "contract_version = '0'",
    "provider_id = 'forged'",
    "resolution = 'operator'",
    "attempt_count = 0",
    "event_sequence = event_sequence + 2",
    "event_sequence = event_sequence + 1, provider_id = 'forged', last_event = 'duplicate_suspected'",
    "event_sequence = event_sequence + 1, attempt_count = 0, last_event = 'replay_started'",
    "event_sequence = event_sequence + 1, last_event = 'accepted'",
    "event_sequence = event_sequence + 1, resolution = 'lookup', last_event = 'review_opened'",
)
HISTORY = (
    "delete from outbox.outbound_actions",
    "truncate outbox.outbound_actions",
    "delete from outbox.keys",
    "update outbox.keys set fingerprint = ''",
    "truncate outbox.keys",
    "update outbox.action_events set data = '{}'",
    "truncate outbox.action_events",
    "truncate outbox.evidence",
    "delete from outbox.evidence",
    "update outbox.evidence set excerpt = ''",
    "update outbox.evidence set used_at = now(), provider_id = 'forged'",
)
DOUBT = {"kind": "no_response", "proves": "nothing", "reason": "timeout"}


def refusals(stage: Stage, statements: dict[str, str]) -> dict[str, str | None]:
    return {name: stage.refusal("owner", statement) for name, statement in statements.items()}


def test_no_update_changes_an_intent_or_forges_a_fact(stage: Stage) -> None:
    for event in ("no_effect", "response_lost"):
        action = stage.attempt(event)
        where = f"where action_id = '{action}'"
        tried = refusals(
            stage, {change: f"update outbox.outbound_actions set {change} {where}" for change in FORGERIES}
        )
        assert tried == dict.fromkeys(FORGERIES, "OB002")


def test_history_is_refused_to_the_owner_too(stage: Stage) -> None:
    action = stage.attempt("response_lost", evidence=DOUBT)
    before = stage.everything(action)
    assert refusals(stage, {statement: statement for statement in HISTORY}) == dict.fromkeys(HISTORY, "OB002")
    assert stage.everything(action) == before


def test_only_a_settled_payload_can_be_redacted_and_only_to_nothing(stage: Stage) -> None:
    settled = stage.attempt("accepted", provider_id="id-1")
    other = 'update outbox.outbound_actions set payload = \'{"to": "x"}\', redacted_at = now() where action_id = %s'
    assert stage.refusal("owner", other, settled) == "OB002"
    redact = "update outbox.outbound_actions set payload = '{}', redacted_at = now() where action_id = %s"
    stage.rows("owner", redact, settled)
    assert stage.facts(settled)["payload"] == {}
    intent = {"provider": "mail", "operation": "send", "payload": PAYLOAD}
    repeated = stage.insert_as("agent", intent | {"idempotency_key": stage.facts(settled)["idempotency_key"]})
    assert repeated == [], "the intent is still known"


def test_evidence_of_a_settled_action_may_be_deleted_in_the_end(stage: Stage) -> None:
    action = stage.attempt("response_lost", evidence=DOUBT)
    assert stage.resolve(action, "found", provider_id="id-1") == "applied"
    assert stage.refusal("owner", "delete from outbox.evidence") is None
