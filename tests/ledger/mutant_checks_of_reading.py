"""Which tests hold the conditions of what reads, lets in, audits and forgets; mutant_checks has what takes a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.ledger import (
    test_audit,
    test_conditions_of_keeping,
    test_conditions_of_reading,
    test_conditions_of_recalls,
    test_conditions_of_the_door,
    test_conditions_of_waiting,
    test_counters,
    test_long_lines,
    test_reading,
    test_refused_rows,
    test_retention,
)
from tests.ledger.factories import Stage
from tests.ledger.test_refused_rows import DEEP, VERY_DEEP

Check = Callable[[Stage], Any]
read, recall, door, wait, keep = (
    test_conditions_of_reading,
    test_conditions_of_recalls,
    test_conditions_of_the_door,
    test_conditions_of_waiting,
    test_conditions_of_keeping,
)


def each_of(check: Callable[..., Any], **values: Any) -> list[Check]:
    """A check once for each value of its parameter."""
    ((name, choices),) = values.items()
    return [partial(check, **{name: choice}) for choice in choices]


def _poison(*payloads: str) -> list[Check]:
    check = test_refused_rows.test_poison_is_refused_by_a_plain_insert_and_explained_by_enqueue
    codes = {'{"a": "\\u0000"}': "22P05", "{": "22P02", '{"a": 1e400000}': "22003", VERY_DEEP: "54001"}
    return [partial(check, poison=payload, plain=codes[payload]) for payload in payloads]


_LABELS: list[Check] = [
    partial(test_refused_rows.test_a_label_that_cannot_be_used_is_refused_with_a_hint, label=label, value=value)
    for label, value in (
        ("priority", None),
        ("priority", 3),
        ("traceparent", "00-xyz"),
        ("ordering_key", ""),
        ("tenant", "t" * 256),
        ("content_version", "v" * 256),
        ("recipient", "r" * 2001),
    )
]
_HINTS: list[Check] = [
    partial(door.test_a_label_that_cannot_be_used_has_the_hint_of_its_kind, columns=columns, hint=hint)
    for columns, hint in (
        ({"priority": 3}, "Use 0"),
        ({"traceparent": "x"}, "Send a W3C"),
        ({"recipient": "r" * 2001}, "Give at most 2000"),
    )
]
_WAITING = [
    partial(wait.test_what_is_due_next_is_what_a_claim_would_take, arrange=arrange, expected=expected)
    for arrange, expected in wait.WAITING
]
_AUDIT: list[Check] = [
    keep.test_what_only_looks_wrong_is_no_finding,
    keep.test_each_finding_is_told_once_and_alone,
    test_audit.test_a_hold_without_a_review_and_a_claim_without_a_holder_are_found,
]
_STEPS_UNLISTED = [
    partial(keep.test_a_step_that_is_not_listed_is_found_by_each_of_its_parts, field=field, value=value)
    for field, value in (
        ("previous_execution_state", "retry_scheduled"),
        ("previous_delivery_state", "delivery_confirmed"),
        ("event", "accepted"),
        ("execution_state", "on_hold"),
        ("delivery_state", "delivery_confirmed"),
    )
]


def _walks(function: str, call: str) -> list[Check]:
    return [
        partial(keep.test_a_walk_takes_the_oldest_and_no_more_than_it_looked_at, function=function),
        partial(keep.test_a_walk_passes_what_somebody_holds_or_must_look_at, function=function),
        *[partial(test_retention.test_less_than_a_day_is_refused, call=call, days=days) for days in ("0", "null")],
    ]


CHECKS_OF_READING: dict[str, list[Check]] = {
    "advice": [read.test_advice_follows_from_the_states_and_an_open_review],
    "record_type": [read.test_a_record_is_of_the_notice_or_the_receipt_or_the_state],
    "action_history": [read.test_a_history_is_of_one_action_from_its_beginning],
    "action_request": [read.test_a_request_is_of_the_action_asked_for],
    "find_action": [read.test_an_action_is_found_by_its_key_and_by_its_id],
    "list_actions": [read.test_a_list_of_actions_is_what_was_asked_for_newest_first],
    "list_reviews": [read.test_a_list_of_reviews_is_what_was_asked_for_most_urgent_first],
    "changes": [
        read.test_changes_are_ones_own_from_the_cursor_on_in_order,
        read.test_changes_come_in_order_per_action_in_pages_of_any_size,
        read.test_what_a_newer_transaction_leads_is_shown_to_its_end,
        test_reading.test_a_late_commit_is_not_passed_over,
        *each_of(test_reading.test_a_cursor_that_is_none_is_refused_with_a_hint, cursor=["x", "1/2/3"]),
    ],
    "cancel": [
        read.test_a_cancel_is_of_ones_own_action_and_speaks_of_it,
        test_reading.test_a_key_that_does_not_exist_cannot_be_cancelled,
    ],
    "views": [read.test_a_status_is_ones_own_and_of_the_review_that_is_open],
    "backlog": [read.test_what_waits_is_counted_once_and_where_it_belongs],
    "counters": [read.test_counters_count_what_was_created_what_is_suspected_and_what_is_open],
    "capture_health": [read.test_the_health_of_the_capture_is_of_our_publication_and_the_slot_asked_for],
    "next_dispatch_in": [
        *_WAITING,
        wait.test_the_next_is_the_earliest,
        test_long_lines.test_looking_ahead_begins_where_claims_begin,
    ],
    "next_unknown_in": [wait.test_the_reconciler_is_told_the_earliest_of_what_it_may_take],
    "recall_claims": [
        *each_of(recall.test_a_recall_is_of_what_is_held_under_its_token_in_order, role=["relay"]),
        recall.test_a_recalled_claim_is_in_the_mode_of_its_account_and_of_its_release,
        recall.test_a_relay_recalls_no_look_of_a_reconciler,
    ],
    "recall_unknowns": each_of(recall.test_a_recall_is_of_what_is_held_under_its_token_in_order, role=["reconciler"]),
    "unknown_case": [recall.test_a_case_holds_its_own_evidence_and_review_and_nobody_elses],
    "as_claim": [recall.test_a_recalled_claim_is_in_the_mode_of_its_account_and_of_its_release],
    "check_labels": [*_LABELS, *_HINTS],
    "check_payload": [
        *each_of(test_refused_rows.test_a_payload_that_is_no_object_or_too_deep_is_refused, payload=[None, "[]", DEEP]),
        door.test_a_payload_may_have_many_lists_that_are_not_deep,
        test_refused_rows.test_a_payload_that_is_too_large_is_refused_and_its_size_told,
    ],
    "expected_recipients": [door.test_a_recipient_is_read_from_texts_numbers_and_lists_only],
    "enqueue": [door.test_what_is_enqueued_again_is_told_of_itself],
    "enqueue_text": _poison('{"a": "\\u0000"}', "{", '{"a": 1e400000}', VERY_DEEP),
    "refuse_other_intent": [
        door.test_another_intent_is_told_of_its_own_action,
        door.test_only_its_creator_is_told_of_an_action_and_only_while_it_is_there,
        door.test_the_same_number_written_otherwise_is_another_payload,
        test_retention.test_after_redaction_the_intent_is_still_known_and_another_still_refused,
        *each_of(door.test_a_part_of_the_intent_that_differs_is_named, part=["operation", "account"]),
    ],
    "refuse_unknown_operation": [door.test_what_is_declared_is_named_nearest_first_ten_at_most],
    "register_actions": [door.test_what_came_first_in_one_statement_goes_first],
    "apply_accounts": [door.test_what_is_declared_again_is_changed_and_what_is_not_is_left],
    "declared_accounts": [
        door.test_what_is_declared_is_listed_in_order,
        door.test_what_is_declared_again_is_changed_and_what_is_not_is_left,
    ],
    "roll_up_counters": [
        door.test_counts_are_rolled_up_oldest_first_and_only_those_taken,
        test_counters.test_rolling_up_changes_no_sum_and_leaves_no_probe,
        test_counters.test_two_roll_ups_do_not_wait_for_each_other,
    ],
    "audit_totals": _AUDIT,
    "audit_keys": [
        keep.test_an_audit_goes_through_everything_once_in_order,
        keep.test_findings_are_told_in_order_and_say_what_is_wrong,
    ],
    "audit_actions": [
        keep.test_an_audit_goes_through_everything_once_in_order,
        keep.test_findings_are_told_in_order_and_say_what_is_wrong,
        *each_of(keep.test_an_event_that_nobody_can_read_is_a_finding_and_no_error, data=["x", "5", "[1]"]),
    ],
    "audit_facts": [*_AUDIT, test_audit.test_a_hold_whose_cancel_met_an_acceptance_is_the_reconcilers],
    "audit_history": [*_AUDIT, *_STEPS_UNLISTED, test_audit.test_a_lost_tail_and_a_lost_history_are_found],
    "redact_settled": [
        *_walks("redact_settled", "redact_settled({}, null, 10)"),
        test_retention.test_the_age_counts_from_the_last_change,
        test_retention.test_everything_settled_is_redacted_in_time_and_nothing_open,
    ],
    "delete_history": [
        *_walks("delete_history", "delete_history({}, 0, null, 10)"),
        keep.test_history_stays_some_days_after_its_payload_went,
        test_retention.test_history_goes_after_the_payload_and_leaves_a_note,
        test_retention.test_what_comes_up_after_redaction_keeps_its_history_until_it_is_closed,
    ],
}
