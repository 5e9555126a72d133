-- Claims what the reconciler must look at: acceptances nobody has used yet, first; then unknowns that are due.
-- No state changes. Lock order: the token, then queue rows (skipping locked ones).
create or replace function outbox.claim_unknowns(
    p_limit integer, p_token uuid, p_lease_ms integer, p_deadline_ms integer, p_worker text)
  returns setof jsonb language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_now timestamptz;
  v_ids uuid[];
  v_id uuid;
begin
  perform pg_advisory_xact_lock(hashtextextended(p_token::text, 0));
  v_now := outbox.now();
  v_ids := array(
    select q.action_id from outbox.work_queue q
     where q.evidence_waiting and q.claim_token is null
     order by q.action_id limit p_limit for update skip locked);
  v_ids := v_ids || array(
    select q.action_id from outbox.work_queue q
     where q.kind = 'unknown' and q.claim_token is null and q.due_at <= v_now and not q.evidence_waiting
     order by q.due_at limit p_limit - cardinality(v_ids) for update skip locked);
  for v_id in select unnest(v_ids) as action_id order by 1 loop
    update outbox.work_queue q
       set claim_token = p_token, claimed_until = v_now + p_lease_ms * interval '1 ms', claimed_by = p_worker
     where q.action_id = v_id;
    return next outbox.unknown_case(v_id, p_token, v_now);
  end loop;
end $$;
