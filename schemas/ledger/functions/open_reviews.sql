-- The reconciler cannot go on: a named person must look. The action stays as it is and its claim is given back.
-- p_requests: [{"action_id", "claim_token", "reason", "owner", "missing", "next_step", "due_in_ms", "look_again_in_ms",
--               "evidence"}]. Without look_again_in_ms nothing is tried until somebody decides or evidence arrives.
-- Lock order: the queue rows of the whole batch in order of action_id, then the ledger.
create or replace function outbox.open_reviews(p_requests jsonb)
  returns table (action_id uuid, verdict text, execution_state text, delivery_state text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare
  v_item record;
  v_queue outbox.work_queue;
begin
  perform outbox.lock_queue(p_requests);
  for v_item in
    select r.* from jsonb_to_recordset(p_requests) as r (
        action_id uuid, claim_token uuid, reason text, owner text, missing text, next_step text, due_in_ms bigint,
        look_again_in_ms bigint, evidence jsonb)
     order by r.action_id loop
    select q.* into v_queue from outbox.work_queue q
     where q.action_id = v_item.action_id and q.claim_token = v_item.claim_token;
    verdict := case when found then 'applied' else 'stale' end;
    if v_item.evidence is not null then
      perform outbox.record_evidence(v_item.action_id, v_item.evidence);
    end if;
    if verdict = 'applied' then
      perform outbox.land_replay(v_queue);
      perform outbox.requeue(v_item.action_id, v_queue.kind,
        coalesce(outbox.now() + v_item.look_again_in_ms * interval '1 ms', 'infinity'));
      if outbox.open_review(v_item.action_id, v_item.reason, v_item.owner, v_item.missing, v_item.next_step,
                            v_item.due_in_ms) then
        perform outbox.announce(v_item.action_id, 'review_opened', 'reconciler', v_item.reason);
      end if;
    end if;
    action_id := v_item.action_id;
    select a.execution_state, a.delivery_state into execution_state, delivery_state
      from outbox.outbound_actions a where a.action_id = v_item.action_id;
    return next;
  end loop;
end $$;
