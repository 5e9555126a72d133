-- Ends the open review of an action, if there is one, and the incident when it was the last.
create or replace function outbox.close_review(p_action_id uuid, p_decision text, p_reason text, p_by text)
  returns void language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare v_incident bigint;
begin
  update outbox.reviews r
     set closed_at = outbox.now(), decision = p_decision, decision_reason = p_reason, decided_by = p_by
   where r.action_id = p_action_id and r.closed_at is null
   returning r.incident_id into v_incident;
  if found and not exists (select from outbox.reviews r where r.incident_id = v_incident and r.closed_at is null) then
    update outbox.incidents i set closed_at = outbox.now() where i.incident_id = v_incident;
  end if;
end $$;
