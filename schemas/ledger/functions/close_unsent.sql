-- Closes an action that was never sent. The caller holds the queue row and knows that it is unclaimed.
create or replace function outbox.close_unsent(
    p_action_id uuid, p_execution text, p_event text, p_actor text, p_reason text)
  returns void language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  update outbox.outbound_actions a
     set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
         execution_state = p_execution, delivery_state = 'not_sent', last_event = p_event, last_actor = p_actor,
         last_reason = p_reason
   where a.action_id = p_action_id;
  delete from outbox.work_queue q where q.action_id = p_action_id;
  perform outbox.close_review(p_action_id, p_execution, p_reason, p_actor);
end $$;
