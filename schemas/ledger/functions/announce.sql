-- Appends a notice to the history and the topic without a change of state.
create or replace function outbox.announce(p_action_id uuid, p_notice text, p_actor text, p_reason text)
  returns void language sql volatile set search_path = pg_catalog, outbox, pg_temp
as $$
  update outbox.outbound_actions a
     set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
         last_event = p_notice, last_actor = p_actor, last_reason = p_reason
   where a.action_id = p_action_id
$$;
