"""What no UPDATE, DELETE or TRUNCATE can do, not even the owner's: the second fence behind the functions and grants."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from outbox_relay.states import ReceiptState
from tests.ledger.factories import NUMBERED, PAYLOAD, TIMED, Stage

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
    "event_sequence = event_sequence + 2, updated_at = outbox.now(), last_event = 'review_opened'",
    f"{NUMBERED}, provider_id = 'forged', last_event = 'duplicate_suspected'",
    f"{NUMBERED}, attempt_count = 0, last_event = 'replay_started'",
    f"{NUMBERED}, last_event = 'accepted'",
    f"{NUMBERED}, resolution = 'lookup', last_event = 'review_opened'",
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


def changes(stage: Stage, action: UUID, *settings: str) -> dict[str, str | None]:
    """How the owner's own UPDATE fares, each taken back."""
    return {
        change: stage.refusal("owner", f"update outbox.outbound_actions set {change} where action_id = '{action}'")
        for change in settings
    }


# -- One condition at a time -------------------------------------------------------------------------------------------

REDACTIONS = (
    "payload = '{}', redacted_at = now()",
    "recipient = null, redacted_at = now()",
    "redacted_at = now()",
    "payload = '{}', recipient = null, redacted_at = now(), history_deleted_at = now()",
)


@pytest.mark.parametrize("event", ["no_effect", "response_lost"])
def test_nothing_open_is_redacted(stage: Stage, event: str) -> None:
    action = stage.attempt(event)
    assert changes(stage, action, *REDACTIONS) == dict.fromkeys(REDACTIONS, "OB002")


def test_a_redaction_is_said_and_leaves_nothing(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="id-1")
    forged = (
        "payload = '{}'",
        "recipient = null",
        "recipient = 'other', redacted_at = now()",
        "history_deleted_at = now()",
    )
    assert changes(stage, action, *forged) == dict.fromkeys(forged, "OB002")
    assert changes(stage, action, *REDACTIONS) == dict.fromkeys(REDACTIONS)


def test_a_redaction_is_once_and_so_is_the_end_of_a_history(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="id-1")
    change = "update outbox.outbound_actions set {} where action_id = %s"
    stage.owner.execute(change.format(REDACTIONS[0]).encode(), [action])
    again = ("redacted_at = redacted_at + interval '1 second'", "redacted_at = null")
    assert changes(stage, action, *again) == dict.fromkeys(again, "OB002")
    stage.owner.execute(change.format("history_deleted_at = now()").encode(), [action])
    later = ("history_deleted_at = history_deleted_at + interval '1 second'", "history_deleted_at = null")
    assert changes(stage, action, *later) == dict.fromkeys(later, "OB002")


def test_what_is_under_suspicion_can_be_redacted(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="id-1")
    stage.late_acceptance(action, "id-9")
    assert stage.facts(action)["last_event"] == "duplicate_suspected"
    assert changes(stage, action, *REDACTIONS) == dict.fromkeys(REDACTIONS)


def test_a_step_is_one_event_and_moves_no_receipt(stage: Stage) -> None:
    action, _ = stage.started()
    step = (
        "execution_state = 'dispatch_finished', delivery_state = 'delivery_confirmed', last_event = 'accepted',"
        " last_actor = 'relay', resolution = 'response', provider_id = 'id-1'"
    )
    numbered = f"{step}, {NUMBERED}"
    forged = (step, f"{step}, {TIMED}, event_sequence = event_sequence + 2", f"{numbered}, receipt_state = 'awaited'")
    assert changes(stage, action, *forged, numbered) == dict.fromkeys(forged, "OB002") | {numbered: None}
    stage.rows("owner", f"update outbox.outbound_actions set {numbered} where action_id = %s", action)
    told = stage.rows("owner", "select sequence from outbox.action_events order by 1")
    assert [row["sequence"] for row in told] == [1, 2, 3]


def test_a_receipt_brings_no_other_fact(stage: Stage) -> None:
    stage.declare({"receipts_expected": True})
    action = stage.attempt("accepted", provider_id="id-1")
    assert stage.facts(action)["receipt_state"] == ReceiptState.AWAITED
    move = f"receipt_state = 'delivered', last_event = 'receipt_delivered', last_actor = 'reconciler', {NUMBERED}"
    assert changes(stage, action, move) == {move: None}
    forged = tuple(f"{move}, {fact}" for fact in ("provider_id = 'other'", "attempt_count = 0"))
    assert changes(stage, action, *forged) == dict.fromkeys(forged, "OB002")


NOTICE = "event_sequence = event_sequence + 1, last_event = 'review_opened', last_actor = 'operator'"
LATER = ("updated_at + interval '1 millisecond'", "outbox.now()", "outbox.now() + interval '50 seconds'")
WRONG_TIMES = ("updated_at - interval '1 microsecond'", "outbox.now() + interval '70 seconds'", "'infinity'")


def test_the_time_of_an_event_is_never_before_the_last_one_nor_far_ahead(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    stage.advance(1000)
    taken, refused = ([f"{NOTICE}, updated_at = {time}" for time in times] for times in (LATER, WRONG_TIMES))
    assert changes(stage, action, *taken, *refused) == dict.fromkeys(taken) | dict.fromkeys(refused, "OB002")


def test_an_event_without_its_time_is_refused_unless_the_clock_was_set_back(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    stage.advance(2)
    assert changes(stage, action, NOTICE) == {NOTICE: "OB002"}
    stage.advance(-1000)
    ahead = f"{NOTICE}, updated_at = updated_at + interval '1 microsecond'"
    assert changes(stage, action, NOTICE, ahead) == {NOTICE: None, ahead: "OB002"}


def test_the_time_of_the_last_event_moves_with_an_event_only(stage: Stage) -> None:
    action = stage.attempt("response_lost")
    stage.advance(1000)
    moved = [f"updated_at = {time}" for time in LATER]
    assert changes(stage, action, "last_error = 'x'", *moved) == {"last_error = 'x'": None} | dict.fromkeys(
        moved, "OB002"
    )


@pytest.mark.parametrize("jump_s", [-1000, 1000])
def test_a_clock_that_jumps_takes_no_event_back_in_time(stage: Stage, jump_s: int) -> None:
    action = stage.attempt("response_lost")
    review = stage.ask(action)
    before = stage.facts(action)["updated_at"]
    stage.advance(jump_s)
    assert stage.cancel(action) == "cancel_requested"
    stage.decide(review, "failed")
    stage.late_acceptance(action, "id-9")
    times = "select occurred_at from outbox.action_events where action_id = %s order by sequence"
    told = [row["occurred_at"] for row in stage.rows("owner", times, action)]
    assert told == sorted(told)
    assert stage.facts(action)["updated_at"] == told[-1]
    assert stage.facts(action)["duplicate_suspected"]
    assert (told[-1] == before) == (jump_s < 0), "the clock stands where it was until it is reached again"


# -- The door ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fact", [{"execution_state": "on_hold"}, {"provider_id": "id-1"}, {"attempt_count": 1}])
def test_no_fact_is_inserted_by_the_owner_either(stage: Stage, fact: dict[str, object]) -> None:
    row = {"provider": "mail", "operation": "send", "idempotency_key": "k1", "payload": json.dumps(PAYLOAD)} | fact
    columns, marks = ", ".join(row), ", ".join(["%s"] * len(row))
    insert = f"insert into outbox.outbound_actions ({columns}) values ({marks})"
    assert stage.refusal("owner", insert, *row.values()) == "OB002"


def test_a_recipient_may_be_named_where_the_contract_cannot_tell(stage: Stage) -> None:
    stage.declare({"recipient_paths": []})
    assert stage.facts(stage.insert(recipient="somebody"))["recipient"] == "somebody"
