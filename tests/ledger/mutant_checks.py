"""Which tests hold the conditions of which function: the likeliest to notice first, since the first failure ends it."""

from __future__ import annotations

from functools import partial

from outbox_relay.states import STATES, TRANSITIONS, Event, ReceiptState
from tests.ledger import (
    test_claims,
    test_fencing,
    test_guard,
    test_lock_order,
    test_reading,
    test_reconciliation_functions,
    test_refused_rows,
    test_transitions,
)
from tests.ledger import test_conditions_of_evidence as evidence
from tests.ledger import test_conditions_of_recalls as recall
from tests.ledger import test_conditions_of_steps as step
from tests.ledger import test_conditions_of_waiting as wait
from tests.ledger import test_each_condition as each
from tests.ledger import test_long_lines as long
from tests.ledger.mutant_checks_of_reading import CHECKS_OF_READING, Check
from tests.ledger.mutant_checks_of_reading import each_of as _each


def _steps(*events: Event) -> list[Check]:
    taken = [t for t in TRANSITIONS if t.event in events and not test_transitions.has_no_function(t)]
    return [partial(test_transitions.test_a_listed_step_is_taken_by_its_function_and_told_once, step=t) for t in taken]


_UNLISTED = _each(test_transitions.test_an_update_that_is_not_a_listed_step_is_refused_to_the_owner_too, origin=STATES)
_RECEIPTS = _each(test_transitions.test_a_receipt_moves_only_by_a_listed_step, origin=list(ReceiptState))
_REPORTS = (Event.ACCEPTED, Event.REFUSED, Event.RESPONSE_LOST, Event.NO_EFFECT, Event.HELD, Event.RELEASED)
_PROOFS = (Event.FOUND, Event.REPLAY_ACCEPTED, Event.RECEIPT_ARRIVED, Event.LATE_ACCEPTANCE)
_OUTCOMES: list[Check] = [
    partial(step.test_a_batch_is_answered_in_order_of_its_actions_and_of_each, function="record_outcomes"),
    *_each(each.test_a_token_counts_for_its_own_action_alone, event=["accepted", "refused"]),
    *_each(
        each.test_an_outcome_settles_no_other_action_that_was_started, event=["accepted", "refused", "response_lost"]
    ),
    *_each(each.test_an_outcome_of_what_was_never_started_is_stale, event=["accepted", "refused"]),
    each.test_an_acceptance_under_a_reconcilers_token_is_kept,
    each.test_an_acceptance_in_time_is_no_evidence,
    evidence.test_what_a_stale_outcome_learned_is_kept,
    *_each(step.test_acceptances_of_several_claims_are_told_apart, with_a_stale_one=[False, True]),
    each.test_an_outcome_without_evidence_records_none,
    test_fencing.test_one_stale_outcome_does_not_spoil_the_batch,
    *_each(test_fencing.test_a_stale_token_cannot_change_a_state, event=test_fencing.EVENTS),
    *_each(test_fencing.test_an_outcome_counts_once, event=test_fencing.EVENTS),
    *_each(test_fencing.test_an_acceptance_that_waits_is_weighed_when_the_attempt_ends, second=["accepted", "refused"]),
    test_fencing.test_an_outcome_that_is_not_the_relays_is_refused,
    step.test_a_hold_is_for_its_own_reason_and_moves_nothing_else,
    *_steps(*_REPORTS),
]
_OPEN = ["no_effect", "response_lost"]
_HEADS = [*test_claims.HEADS, "not before"]
_EVIDENCE = (("id-1", "id-1", False), ("id-1", "id-2", True), ("id-1", None, False), (None, "id-1", False))


def _sweep(sweep: str) -> list[Check]:
    return [
        partial(wait.test_a_sweep_goes_in_order_and_no_further_than_asked, sweep=sweep),
        partial(wait.test_a_sweep_passes_what_somebody_holds_and_holds_what_it_takes, sweep=sweep),
    ]


def _batch(function: str, call: str) -> list[Check]:
    return [
        partial(step.test_a_batch_is_answered_in_order_of_its_actions_and_of_each, function=function),
        partial(step.test_a_look_counts_for_what_it_still_holds_and_its_evidence_is_kept, call=call),
        *_each(
            test_reconciliation_functions.test_a_stale_reconcilers_acceptance_is_used_by_the_next,
            event=["found"] if call == "resolve" else [],
        ),
    ]


CHECKS: dict[str, list[Check]] = {
    "guard_actions": [
        evidence.test_who_changes_the_id_of_an_action_is_told_so,
        test_guard.test_no_update_changes_an_intent_or_forges_a_fact,
        test_guard.test_only_a_settled_payload_can_be_redacted_and_only_to_nothing,
        *_each(test_guard.test_nothing_open_is_redacted, event=_OPEN),
        test_guard.test_what_is_under_suspicion_can_be_redacted,
        test_guard.test_a_redaction_is_said_and_leaves_nothing,
        test_guard.test_a_redaction_is_once_and_so_is_the_end_of_a_history,
        test_guard.test_a_step_is_one_event_and_moves_no_receipt,
        test_guard.test_a_receipt_brings_no_other_fact,
        test_guard.test_the_time_of_an_event_is_never_before_the_last_one_nor_far_ahead,
        test_guard.test_an_event_without_its_time_is_refused_unless_the_clock_was_set_back,
        test_guard.test_the_time_of_the_last_event_moves_with_an_event_only,
        *[
            partial(each.test_a_session_notifies_of_events_only_and_only_when_asked, setting=setting, expected=expected)
            for setting, expected in (("off", []), ("on", [""]))
        ],
        *_RECEIPTS,
        *_UNLISTED,
        *_steps(Event.CLAIMED, Event.ACCEPTED, Event.FOUND),
        test_reconciliation_functions.test_a_replay_is_an_attempt_committed_before_it_is_sent,
        test_reading.test_a_cancel_asked_for_twice_is_told_once,
    ],
    "accept_action": [
        each.test_what_has_no_deadline_or_still_time_does_not_expire,
        *_each(
            test_refused_rows.test_an_unknown_name_is_refused_and_the_known_ones_are_named,
            part=["provider", "operation", "account"],
        ),
        test_refused_rows.test_what_is_declared_no_more_is_refused,
        *_each(test_refused_rows.test_a_key_that_no_header_could_carry_is_refused, key=[None, "a b", "k" * 256]),
        test_refused_rows.test_a_recipient_must_be_what_the_payload_says,
        *_each(test_refused_rows.test_not_before_must_be_finite, value=["infinity"]),
        *_each(test_refused_rows.test_a_deadline_must_be_finite_and_in_the_future, value=["infinity", "2001-01-01"]),
        test_guard.test_a_recipient_may_be_named_where_the_contract_cannot_tell,
        test_guard.test_a_receipt_brings_no_other_fact,
        *_each(
            test_guard.test_no_fact_is_inserted_by_the_owner_either,
            fact=[{"execution_state": "on_hold"}, {"provider_id": "x"}],
        ),
    ],
    "claim_batch": [
        each.test_a_claim_remembers_of_each_action_where_it_came_from,
        each.test_a_claim_touches_only_what_it_took,
        each.test_a_claim_fixes_what_its_own_account_declares,
        each.test_only_a_hold_that_was_released_goes_out_from_an_account_on_hold,
        *[
            partial(
                test_claims.test_a_key_that_does_not_fit_is_replaced_by_a_short_one_that_stays, key=key, change=change
            )
            for key, change in (("k" * 65, {}), ("with/slash", {}), ("fits", {"key_shared": True}))
        ],
    ],
    "scan_from": [
        long.test_what_comes_before_the_noted_place_is_found_by_the_next_whole_scan,
        long.test_a_line_is_read_from_its_own_oldest_open_action,
        long.test_a_transaction_that_is_not_committed_yet_is_left_room_for,
    ],
    "note_long_line": [
        long.test_a_line_is_read_from_its_own_oldest_open_action,
        long.test_a_transaction_that_is_not_committed_yet_is_left_room_for,
    ],
    "claim_actions": [
        long.test_a_short_line_is_read_from_its_beginning,
        long.test_what_is_finished_is_not_read_again_by_every_claim_while_a_snapshot_is_held,
        long.test_what_comes_before_the_noted_place_is_found_by_the_next_whole_scan,
        each.test_a_claim_takes_of_the_asked_account_only,
        test_claims.test_the_head_of_an_ordering_key_goes_first_alone,
        test_claims.test_urgent_actions_go_first_and_the_oldest_of_them,
        test_claims.test_an_action_waits_for_not_before,
        test_claims.test_an_action_past_its_deadline_is_never_claimed,
        each.test_a_deadline_ends_no_unknown,
        *_each(each.test_an_ordering_key_orders_within_its_account_only, other=[{"provider": "o"}, {"account": "o"}]),
        *_each(test_fencing.test_a_late_acceptance_stops_what_would_be_sent_again, state=["no_effect"]),
        *_each(test_claims.test_a_head_that_cannot_go_blocks_its_followers, head=_HEADS),
        *_each(test_claims.test_a_head_that_cannot_go_is_passed_where_the_account_says_so, head=_HEADS),
        test_claims.test_a_head_that_can_go_is_never_passed,
        test_fencing.test_an_expired_claim_becomes_unknown_and_never_ready,
        wait.test_a_claim_takes_the_earliest_first_and_no_more_than_it_may,
        test_claims.test_a_claim_in_progress_is_passed_not_waited_for,
        test_claims.test_no_more_is_claimed_than_there_are_slots_and_the_same_demand_twice_is_one,
    ],
    "record_accepted": _OUTCOMES,
    "record_outcomes": _OUTCOMES,
    "record_outcome": _OUTCOMES,
    "record_resolution": [
        partial(step.test_a_batch_is_answered_in_order_of_its_actions_and_of_each, function="record_resolutions"),
        step.test_a_conclusion_says_how_it_was_reached,
        *_each(each.test_a_conclusion_that_does_not_fit_is_stale_and_no_error, origin=STATES),
        each.test_a_refused_replay_is_never_sent_again,
        *[
            partial(each.test_a_conclusion_uses_the_evidence_that_it_rests_on, waiting=a, concluded=b, suspected=c)
            for a, b, c in _EVIDENCE
        ],
        each.test_a_failure_against_an_acceptance_is_suspected,
        *_steps(Event.PROVEN_ABSENT, Event.REPLAY_REFUSED, *_PROOFS),
    ],
    "begin_replay": [
        test_reconciliation_functions.test_no_replay_without_the_claim,
        test_reconciliation_functions.test_no_replay_once_a_cancel_was_asked_for,
        test_reconciliation_functions.test_no_replay_after_the_deadline,
        test_reconciliation_functions.test_no_replay_when_an_acceptance_arrived_meanwhile,
        each.test_a_replay_is_of_the_one_action_that_is_held,
        each.test_a_replay_has_until_the_deadline,
        each.test_a_replay_is_in_the_mode_of_its_own_account,
        step.test_only_a_replay_of_ones_own_lands,
        partial(test_lock_order.test_nobody_holds_a_ledger_row_while_waiting_for_its_queue_row, call="replay"),
    ],
    "cancel_action": [
        test_fencing.test_an_acceptance_that_waits_is_neither_withdrawn_nor_expired_away,
        test_reading.test_a_cancel_asked_for_twice_is_told_once,
        each.test_a_cancel_asks_for_no_other_action,
        each.test_a_cancel_withdraws_no_other_action,
        partial(test_lock_order.test_nobody_holds_a_ledger_row_while_waiting_for_its_queue_row, call="cancel"),
        *_each(test_transitions.test_a_cancel_withdraws_only_what_was_not_sent, origin=STATES),
    ],
    "decide_review": [
        each.test_a_decision_is_about_its_own_review_and_action,
        step.test_a_decision_is_about_its_own_queue_row_and_says_who_resolved_it,
        step.test_a_release_is_of_the_one_action_that_was_decided_on,
        *_each(test_reconciliation_functions.test_a_decision_needs_a_reason, reason=["  "]),
        test_fencing.test_two_clicks_are_one_decision,
        test_lock_order.test_two_decisions_at_the_same_time_are_one,
        partial(test_lock_order.test_nobody_holds_a_ledger_row_while_waiting_for_its_queue_row, call="decision"),
        test_fencing.test_an_operators_resend_waits_until_the_last_attempt_cannot_be_on_its_way,
        test_fencing.test_a_resend_is_refused_once_a_cancel_was_asked_for,
        *_each(test_transitions.test_an_operator_decides_only_what_the_state_allows, origin=STATES),
    ],
    "sweep_expired_claims": [
        each.test_a_sweep_takes_only_what_ran_out,
        test_fencing.test_a_lease_that_has_not_run_out_is_left_alone,
        test_reconciliation_functions.test_a_look_that_ran_out_is_given_back_and_counts_as_nothing,
        wait.test_the_evidence_of_a_sweep_is_of_the_attempt_that_ran_out,
        test_reconciliation_functions.test_a_sweep_is_bounded,
        *_sweep("expired claims"),
    ],
    "sweep_deadlines": [
        each.test_what_has_no_deadline_or_still_time_does_not_expire,
        test_reconciliation_functions.test_a_deadline_expires_what_waits_and_nothing_else,
        test_fencing.test_an_acceptance_that_waits_is_neither_withdrawn_nor_expired_away,
        each.test_a_deadline_ends_no_unknown,
        *_sweep("deadlines"),
    ],
    "announce": [step.test_a_review_is_of_its_own_account_and_touches_no_other],
    "open_review": [
        step.test_a_review_is_of_its_own_account_and_touches_no_other,
        step.test_a_closed_review_stays_as_it_was_and_a_new_one_is_opened,
        step.test_a_review_joins_the_newest_incident_of_its_cause,
        test_reconciliation_functions.test_reviews_of_one_cause_are_one_incident,
    ],
    "close_review": [step.test_a_closed_review_stays_as_it_was_and_a_new_one_is_opened],
    "close_unsent": [each.test_a_cancel_withdraws_no_other_action],
    "keep_late_acceptance": [
        evidence.test_an_acceptance_of_an_open_action_waits_and_marks_no_other,
        *_each(
            test_fencing.test_what_a_reconciler_learned_without_its_claim_settles_by_how_it_was_learned, event=["found"]
        ),
    ],
    "learned_late": [recall.test_a_late_acceptance_is_named_by_the_first_that_is_unused],
    "weigh_evidence": [
        evidence.test_an_acceptance_is_weighed_against_its_own_action_and_once,
        evidence.test_an_acceptance_of_an_open_action_waits_and_marks_no_other,
        evidence.test_an_acceptance_that_contradicts_a_refusal_is_suspected,
        evidence.test_an_acceptance_of_an_action_that_this_ledger_lost_stays_unused,
        evidence.test_two_acceptances_of_a_settled_action_are_weighed_one_after_the_other,
    ],
    "guard_evidence": [evidence.test_evidence_is_kept_as_it_came_until_it_may_go],
    "guard_history": [evidence.test_events_go_only_with_their_own_noted_action],
    "land_replay": [
        step.test_only_a_replay_of_ones_own_lands,
        test_reconciliation_functions.test_a_replay_that_was_answered_is_no_longer_in_flight,
    ],
    "lock_queue": [
        wait.test_a_batch_locks_its_own_queue_rows,
        step.test_a_batch_waits_for_the_lowest_of_its_rows_first,
    ],
    "requeue": [step.test_a_hold_is_for_its_own_reason_and_moves_nothing_else],
    "record_unsent": [
        step.test_a_limit_of_retries_is_of_ones_own_account_and_action,
        step.test_a_hold_is_for_its_own_reason_and_moves_nothing_else,
        test_fencing.test_an_acceptance_that_waits_is_not_cancelled_away,
        *_each(test_reading.test_a_cancel_is_honoured_as_soon_as_nothing_was_sent, event=["no_effect", "held"]),
    ],
    "record_resolutions": _batch("record_resolutions", "resolve"),
    "postpone_unknowns": [
        *_batch("postpone_unknowns", "postpone"),
        step.test_a_lookup_is_counted_where_it_was_spent,
    ],
    "open_reviews": [
        *_batch("open_reviews", "ask"),
        test_reconciliation_functions.test_a_review_has_an_owner_a_due_time_and_is_opened_once,
    ],
    "claim_unknowns": [
        wait.test_a_reconciler_takes_evidence_first_then_the_oldest_unknown_and_no_more_than_asked,
        wait.test_a_reconciler_does_not_look_before_it_is_time,
        recall.test_windows_are_each_actions_own,
        recall.test_a_window_that_is_over_is_none,
        recall.test_an_unknown_is_found_behind_many_that_are_not_to_be_taken,
        recall.test_the_oldest_of_many_is_taken_wherever_it_lies,
        *_each(wait.test_two_reconcilers_pass_what_the_other_takes, evidence=[False, True]),
    ],
    **CHECKS_OF_READING,
}
