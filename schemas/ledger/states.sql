-- Generated from schemas/states.toml by tools/generate.py. Do not edit.
-- Re-applied at every migration: the rows the guard trigger joins, and the checks that make other states impossible.
-- One constant for each check: every statement that writes a row reads its table's checks anew, constant by constant.

truncate outbox.transitions;
insert into outbox.transitions (event, actor, from_execution, from_delivery, to_execution, to_delivery) values
  ('claimed', 'relay', 'action_created', 'delivery_pending', 'dispatch_started', 'delivery_pending'),
  ('claimed', 'relay', 'retry_scheduled', 'delivery_pending', 'dispatch_started', 'delivery_pending'),
  ('released', 'relay', 'dispatch_started', 'delivery_pending', 'action_created', 'delivery_pending'),
  ('released', 'relay', 'dispatch_started', 'delivery_pending', 'retry_scheduled', 'delivery_pending'),
  ('accepted', 'relay', 'dispatch_started', 'delivery_pending', 'dispatch_finished', 'delivery_confirmed'),
  ('refused', 'relay', 'dispatch_started', 'delivery_pending', 'dispatch_finished', 'delivery_rejected'),
  ('no_effect', 'relay', 'dispatch_started', 'delivery_pending', 'retry_scheduled', 'delivery_pending'),
  ('no_effect', 'relay', 'dispatch_started', 'delivery_pending', 'on_hold', 'delivery_pending'),
  ('held', 'relay', 'action_created', 'delivery_pending', 'on_hold', 'delivery_pending'),
  ('held', 'relay', 'retry_scheduled', 'delivery_pending', 'on_hold', 'delivery_pending'),
  ('held', 'relay', 'dispatch_started', 'delivery_pending', 'on_hold', 'delivery_pending'),
  ('response_lost', 'relay', 'dispatch_started', 'delivery_pending', 'dispatch_finished', 'delivery_unknown'),
  ('claim_expired', 'relay', 'dispatch_started', 'delivery_pending', 'dispatch_finished', 'delivery_unknown'),
  ('claim_expired', 'reconciler', 'dispatch_started', 'delivery_pending', 'dispatch_finished', 'delivery_unknown'),
  ('hold_released', 'operator', 'on_hold', 'delivery_pending', 'retry_scheduled', 'delivery_pending'),
  ('cancelled', 'agent', 'action_created', 'delivery_pending', 'cancelled', 'not_sent'),
  ('cancelled', 'agent', 'retry_scheduled', 'delivery_pending', 'cancelled', 'not_sent'),
  ('cancelled', 'agent', 'on_hold', 'delivery_pending', 'cancelled', 'not_sent'),
  ('cancelled', 'operator', 'action_created', 'delivery_pending', 'cancelled', 'not_sent'),
  ('cancelled', 'operator', 'retry_scheduled', 'delivery_pending', 'cancelled', 'not_sent'),
  ('cancelled', 'operator', 'on_hold', 'delivery_pending', 'cancelled', 'not_sent'),
  ('deadline_passed', 'reconciler', 'action_created', 'delivery_pending', 'expired', 'not_sent'),
  ('deadline_passed', 'reconciler', 'retry_scheduled', 'delivery_pending', 'expired', 'not_sent'),
  ('deadline_passed', 'reconciler', 'on_hold', 'delivery_pending', 'expired', 'not_sent'),
  ('found', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_confirmed'),
  ('found', 'reconciler', 'action_created', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('found', 'reconciler', 'retry_scheduled', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('found', 'reconciler', 'on_hold', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('replay_accepted', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_confirmed'),
  ('receipt_arrived', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_confirmed'),
  ('receipt_arrived', 'reconciler', 'action_created', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('receipt_arrived', 'reconciler', 'retry_scheduled', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('receipt_arrived', 'reconciler', 'on_hold', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('late_acceptance', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_confirmed'),
  ('late_acceptance', 'reconciler', 'action_created', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('late_acceptance', 'reconciler', 'retry_scheduled', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('late_acceptance', 'reconciler', 'on_hold', 'delivery_pending', 'dispatch_finished', 'reconciled_confirmed'),
  ('proven_absent', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'retry_scheduled', 'delivery_pending'),
  ('proven_absent', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_failed'),
  ('proven_absent', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'expired', 'not_sent'),
  ('proven_absent', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'cancelled', 'not_sent'),
  ('replay_refused', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_failed'),
  ('replay_refused', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'expired', 'not_sent'),
  ('replay_refused', 'reconciler', 'dispatch_finished', 'delivery_unknown', 'cancelled', 'not_sent'),
  ('decided_confirmed', 'operator', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_confirmed'),
  ('decided_failed', 'operator', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'reconciled_failed'),
  ('decided_abandoned', 'operator', 'dispatch_finished', 'delivery_unknown', 'dispatch_finished', 'abandoned'),
  ('decided_resend', 'operator', 'dispatch_finished', 'delivery_unknown', 'retry_scheduled', 'delivery_pending');

truncate outbox.receipt_transitions;
insert into outbox.receipt_transitions (event, actor, from_receipt, to_receipt) values
  ('receipt_delivered', 'reconciler', 'awaited', 'delivered'),
  ('receipt_delivered', 'reconciler', 'not_expected', 'delivered'),
  ('receipt_undelivered', 'reconciler', 'awaited', 'undelivered'),
  ('receipt_undelivered', 'reconciler', 'not_expected', 'undelivered'),
  ('receipt_undelivered', 'reconciler', 'delivered', 'undelivered');

alter table outbox.outbound_actions
  drop constraint if exists outbound_actions_states_check,
  drop constraint if exists outbound_actions_receipt_check;
alter table outbox.outbound_actions
  add constraint outbound_actions_states_check check (execution_state || '/' || delivery_state = any ('{
      action_created/delivery_pending,
      dispatch_started/delivery_pending,
      retry_scheduled/delivery_pending,
      dispatch_finished/delivery_confirmed,
      dispatch_finished/delivery_rejected,
      on_hold/delivery_pending,
      dispatch_finished/delivery_unknown,
      cancelled/not_sent,
      expired/not_sent,
      dispatch_finished/reconciled_confirmed,
      dispatch_finished/reconciled_failed,
      dispatch_finished/abandoned}'::text[])),
  add constraint outbound_actions_receipt_check check (receipt_state = any ('{not_expected,awaited,delivered,undelivered}'::text[]));
