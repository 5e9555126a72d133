-- The reconciler gives claims back and wants to look again later. A replay that was answered is no longer in flight.
-- p_postponements: [{"action_id", "claim_token", "delay_ms", "reason", "spent_lookup", "evidence"}].
-- Lock order: the queue rows of the whole batch in order of action_id, then the ledger.
create or replace function outbox.postpone_unknowns(p_postponements jsonb)
  returns table (action_id uuid, verdict text, execution_state text, delivery_state text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare
  v_item record;
  v_queue outbox.work_queue;
begin
  perform outbox.lock_queue(p_postponements);
  for v_item in
    select r.* from jsonb_to_recordset(p_postponements) as r (
        action_id uuid, claim_token uuid, delay_ms bigint, reason text, spent_lookup boolean, evidence jsonb)
     order by r.action_id loop
    select q.* into v_queue from outbox.work_queue q
     where q.action_id = v_item.action_id and q.claim_token = v_item.claim_token;
    verdict := case when found then 'applied' else 'stale' end;
    if v_item.evidence is not null then
      perform outbox.record_evidence(v_item.action_id, v_item.evidence);
    end if;
    if verdict = 'applied' then
      perform outbox.land_replay(v_queue);
      perform outbox.requeue(v_item.action_id, v_queue.kind, outbox.now() + v_item.delay_ms * interval '1 ms');
      update outbox.work_queue q set lookups = q.lookups + 1
       where q.action_id = v_item.action_id and v_item.spent_lookup;
    end if;
    action_id := v_item.action_id;
    select a.execution_state, a.delivery_state into execution_state, delivery_state
      from outbox.outbound_actions a where a.action_id = v_item.action_id;
    return next;
  end loop;
end $$;
