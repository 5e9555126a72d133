-- One conclusion under the reconciler's claim; the caller holds the queue row.
--   from delivery_unknown (and, for evidence of acceptance, retry_scheduled and on_hold)   actor reconciler
--   found, replay_accepted, receipt_arrived, late_acceptance: to reconciled_confirmed
--   proven_absent: to retry_scheduled when a resend is wished, else reconciled_failed
--   replay_refused: to reconciled_failed;  both to cancelled or expired after a cancel request or the deadline
create or replace function outbox.record_resolution(
    p_queue outbox.work_queue, p_event text, p_reason text, p_resend boolean, p_provider_id text, p_evidence jsonb)
  returns text language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_action outbox.outbound_actions;
  v_execution text := 'dispatch_finished';
  v_delivery text;
  v_now timestamptz := outbox.now();
begin
  select * into v_action from outbox.outbound_actions a where a.action_id = p_queue.action_id;
  if p_event in ('found', 'replay_accepted', 'receipt_arrived', 'late_acceptance') then
    v_delivery := 'reconciled_confirmed';
  elsif p_event in ('proven_absent', 'replay_refused') then
    select s.execution, s.delivery into v_execution, v_delivery from (values
      (v_action.cancel_requested_at is not null, 'cancelled', 'not_sent'),
      (v_action.deliver_by <= v_now, 'expired', 'not_sent'),
      (p_event = 'proven_absent' and p_resend, 'retry_scheduled', 'delivery_pending'),
      (true, 'dispatch_finished', 'reconciled_failed')) as s (holds, execution, delivery) where s.holds limit 1;
  end if;
  if v_delivery is null or not exists (
      select from outbox.transitions t
       where t.from_execution = v_action.execution_state and t.from_delivery = v_action.delivery_state
         and t.event = p_event and t.actor = 'reconciler' and t.to_execution = v_execution
         and t.to_delivery = v_delivery) then
    return 'stale';
  end if;
  if p_evidence is not null then
    perform outbox.record_evidence(p_queue.action_id, p_evidence);
  end if;
  update outbox.outbound_actions a
     set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
         execution_state = v_execution, delivery_state = v_delivery, last_event = p_event, last_actor = 'reconciler',
         last_reason = p_reason, provider_id = coalesce(p_provider_id, a.provider_id),
         resolution = case v_execution when 'retry_scheduled' then null
                      else case p_event when 'found' then 'lookup' when 'replay_accepted' then 'replay'
                             when 'replay_refused' then 'replay' when 'receipt_arrived' then 'receipt'
                             when 'late_acceptance' then outbox.learned_late(p_queue.action_id)
                             else 'lookup' end end,
         in_flight_until = coalesce(p_queue.in_flight_before, a.in_flight_until),
         resend_count = a.resend_count + case v_execution when 'retry_scheduled' then 1 else 0 end,
         retries_from = case v_execution when 'retry_scheduled' then a.attempt_count else a.retries_from end
   where a.action_id = p_queue.action_id;
  perform outbox.close_review(p_queue.action_id, 'resolved', p_reason, 'reconciler');
  if v_execution = 'retry_scheduled' then
    perform outbox.requeue(p_queue.action_id, 'dispatch', v_now);
  else
    delete from outbox.work_queue q where q.action_id = p_queue.action_id;
    update outbox.evidence e set used_at = v_now
     where e.action_id = p_queue.action_id and e.proves = 'acceptance' and e.used_at is null
       and v_delivery = 'reconciled_confirmed'
       and (e.provider_id is null or p_provider_id is null or e.provider_id = p_provider_id);
    perform outbox.weigh_evidence(p_queue.action_id);
  end if;
  return 'applied';
end $$;
