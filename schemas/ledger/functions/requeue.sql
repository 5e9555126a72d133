-- Gives a queue row back, unclaimed, in the right line.
create or replace function outbox.requeue(p_action_id uuid, p_kind text, p_due_at timestamptz)
  returns void language sql volatile set search_path = pg_catalog, outbox, pg_temp
as $$
  update outbox.work_queue q
     set kind = p_kind, due_at = case p_kind when 'hold' then 'infinity' else p_due_at end,
         claim_token = null, claimed_until = null, claimed_by = null, returns_to = null,
         in_flight_before = null, first_attempt_before = null
   where q.action_id = p_action_id
$$;
