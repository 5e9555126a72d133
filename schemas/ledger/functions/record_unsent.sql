-- An attempt that provably had no effect. The caller holds the queue row and its claim.
--   no_effect: retry_scheduled with backoff, or on_hold when the account's limit is spent
--   held:      on_hold, a review opens; no attempt counted
--   released:  back where it was; no attempt counted
create or replace function outbox.record_unsent(
    p_queue outbox.work_queue, p_event text, p_reason text, p_retry_in_ms bigint, p_message text)
  returns void language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_action outbox.outbound_actions;
  v_limit integer;
  v_to text;
  v_due timestamptz := outbox.now();
begin
  select * into v_action from outbox.outbound_actions a where a.action_id = p_queue.action_id;
  if p_event = 'no_effect' then
    select p.retry_limit into v_limit from outbox.providers p
     where p.provider = v_action.provider and p.account = v_action.account and p.operation = v_action.operation;
    v_to := case when v_action.attempt_count - v_action.retries_from > v_limit then 'on_hold' else 'retry_scheduled' end;
    v_due := v_due + coalesce(p_retry_in_ms * interval '1 ms',
      least(interval '1 second' * 2 ^ least(v_action.attempt_count - v_action.retries_from - 1, 12), interval '10 minutes')
        * (0.5 + random()));
  else
    v_to := case p_event when 'held' then 'on_hold' else p_queue.returns_to end;
    v_due := case p_event when 'released' then p_queue.due_at else v_due end;
  end if;
  update outbox.outbound_actions a
     set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
         execution_state = v_to, last_event = p_event, last_actor = 'relay', last_reason = p_reason,
         last_error = coalesce(p_message, a.last_error), in_flight_until = p_queue.in_flight_before,
         first_attempt_at = p_queue.first_attempt_before,
         last_attempt_at = case when p_event <> 'no_effect' and a.attempt_count = 1 then null
                           else a.last_attempt_at end,
         attempt_count = a.attempt_count - case p_event when 'no_effect' then 0 else 1 end
   where a.action_id = p_queue.action_id;
  perform outbox.requeue(p_queue.action_id, case v_to when 'on_hold' then 'hold' else 'dispatch' end, v_due);
  -- An acceptance that waits to be used may mean that something was sent after all: then there is nothing to cancel.
  if v_action.cancel_requested_at is not null and not p_queue.evidence_waiting then
    perform outbox.close_unsent(p_queue.action_id, 'cancelled', 'cancelled', 'agent', 'cancel_requested');
  elsif v_to = 'on_hold' and outbox.open_review(p_queue.action_id,
       case p_event when 'no_effect' then 'retries_exhausted' else p_reason end, null,
       'Nothing was sent. What must be mended before it can be: ' || coalesce(p_message, p_reason) || '.',
       'Mend it, then release the hold; or cancel the action.', 3600000) then
    perform outbox.announce(p_queue.action_id, 'review_opened', 'relay', p_reason);
  end if;
end $$;
