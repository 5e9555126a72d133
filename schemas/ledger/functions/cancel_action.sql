-- Cancels for whoever may. Lock order: queue row, then the ledger.
--   from action_created, retry_scheduled, on_hold   event cancelled   to cancelled   actor agent or operator
create or replace function outbox.cancel_action(p_action_id uuid, p_actor text, p_reason text)
  returns text language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare v_queue outbox.work_queue;
begin
  select q.* into v_queue from outbox.work_queue q where q.action_id = p_action_id for update;
  if not found then
    return 'settled';
  end if;
  if v_queue.claim_token is null and v_queue.kind <> 'unknown' and not v_queue.evidence_waiting then
    perform outbox.close_unsent(p_action_id, 'cancelled', 'cancelled', p_actor, p_reason);
    return 'cancelled';
  end if;
  update outbox.outbound_actions a
     set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
         cancel_requested_at = outbox.now(), last_event = 'cancel_requested', last_actor = p_actor, last_reason = p_reason
   where a.action_id = p_action_id and a.cancel_requested_at is null;
  return 'cancel_requested';
end $$;
