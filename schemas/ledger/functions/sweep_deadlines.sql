-- Actions whose deadline passed before anything was sent.
--   from action_created, retry_scheduled, on_hold   event deadline_passed   to expired   actor reconciler
create or replace function outbox.sweep_deadlines(p_limit integer)
  returns integer language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_id uuid;
  v_count integer := 0;
begin
  for v_id in
    select q.action_id from outbox.work_queue q
     where q.deliver_by <= outbox.now() and q.claim_token is null and q.kind in ('dispatch', 'hold')
       and not q.evidence_waiting
     order by q.action_id limit p_limit for update skip locked loop
    perform outbox.close_unsent(v_id, 'expired', 'deadline_passed', 'reconciler', 'deadline_passed');
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;
