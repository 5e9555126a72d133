-- Claims whose lease ran out: a dispatch becomes delivery_unknown (its bytes may have left), a look by the reconciler
-- is given back. An expired claim never returns to ready.
--   from dispatch_started   event claim_expired   to delivery_unknown   actor relay or reconciler
create or replace function outbox.sweep_expired_claims(p_limit integer, p_actor text)
  returns integer language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_queue outbox.work_queue;
  v_now timestamptz := outbox.now();
  v_count integer := 0;
begin
  if p_actor not in ('relay', 'reconciler') then
    raise exception 'only a relay or a reconciler sweeps' using errcode = 'OB002';
  end if;
  for v_queue in
    select q.* from outbox.work_queue q where q.claim_token is not null and q.claimed_until < v_now
     order by q.action_id limit p_limit for update skip locked loop
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           execution_state = 'dispatch_finished', delivery_state = 'delivery_unknown', last_event = 'claim_expired',
           last_actor = p_actor, last_reason = 'claim_expired', unknown_since = v_now
     where a.action_id = v_queue.action_id and a.execution_state = 'dispatch_started';
    if found then
      perform outbox.record_evidence(v_queue.action_id, jsonb_build_object(
        'kind', 'no_response', 'proves', 'nothing', 'reason', 'claim_expired', 'attempt',
        (select a.attempt_count from outbox.outbound_actions a where a.action_id = v_queue.action_id)));
      v_count := v_count + 1;
      perform outbox.requeue(v_queue.action_id, 'unknown', v_now);
    else
      perform outbox.requeue(v_queue.action_id, v_queue.kind, v_now);
    end if;
  end loop;
  return v_count;
end $$;
