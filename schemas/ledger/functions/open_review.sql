-- Puts an action before a person, once: an open review is brought up to date and keeps its owner. Groups reviews of one cause into an incident,
-- which lasts as long as one of them is open. Nobody waits for an incident: two transactions that meet a new cause at the
-- same moment make two, because waiting would put a second lock order across the batches.
-- Returns true when a review was opened. The caller holds the queue row, if there is one.
create or replace function outbox.open_review(
    p_action_id uuid, p_reason text, p_owner text, p_missing text, p_next_step text, p_due_in_ms bigint)
  returns boolean language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_action outbox.outbound_actions;
  v_owner text;
  v_incident bigint;
begin
  update outbox.reviews r
     set reason = p_reason, missing = p_missing, next_step = p_next_step,
         due_at = least(r.due_at, outbox.now() + p_due_in_ms * interval '1 ms')
   where r.action_id = p_action_id and r.closed_at is null;
  if found then
    return false;
  end if;
  select * into v_action from outbox.outbound_actions a where a.action_id = p_action_id;
  v_owner := coalesce(p_owner, (
    select p.review_owner from outbox.providers p
     where p.provider = v_action.provider and p.account = v_action.account and p.operation = v_action.operation),
    'operators');
  select i.incident_id into v_incident from outbox.incidents i
   where (i.provider, i.account, i.operation, i.reason, i.owner)
         = (v_action.provider, v_action.account, v_action.operation, p_reason, v_owner)
   order by i.incident_id desc limit 1;
  if not exists (select from outbox.reviews r where r.incident_id = v_incident and r.closed_at is null) then
    insert into outbox.incidents (provider, account, operation, reason, owner)
      values (v_action.provider, v_action.account, v_action.operation, p_reason, v_owner)
      returning incident_id into v_incident;
  end if;
  insert into outbox.reviews (incident_id, action_id, reason, owner, missing, next_step, due_at)
    values (v_incident, p_action_id, p_reason, v_owner, p_missing, p_next_step,
            outbox.now() + p_due_in_ms * interval '1 ms');
  return true;
end $$;
