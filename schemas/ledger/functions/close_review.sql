-- Ends the open review of an action, if there is one.
create or replace function outbox.close_review(p_action_id uuid, p_decision text, p_reason text, p_by text)
  returns void language sql volatile set search_path = pg_catalog, outbox, pg_temp
as $$
  update outbox.reviews r
     set closed_at = outbox.now(), decision = p_decision, decision_reason = p_reason, decided_by = p_by
   where r.action_id = p_action_id and r.closed_at is null
$$;
