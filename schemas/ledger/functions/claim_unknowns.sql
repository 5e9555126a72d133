-- Claims what the reconciler must look at: acceptances nobody has used yet, first; then unknowns that are due, of the
-- oldest due ones those first whose replay window ends first. No state changes. p_windows: per provider, account and
-- operation, for how many milliseconds after the first attempt a replay is safe; none is as good as no window.
-- Lock order: the token, then queue rows (skipping locked ones).
drop function if exists outbox.claim_unknowns(integer, uuid, integer, integer, text);
create or replace function outbox.claim_unknowns(
    p_limit integer, p_token uuid, p_lease_ms integer, p_deadline_ms integer, p_worker text,
    p_windows jsonb default '{}')
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
  for v_id in
    select due.action_id
      from (select q.action_id, q.due_at,
                   (select least(a.first_attempt_at + w.safe_ms * interval '1 ms', a.deliver_by)
                      from outbox.outbound_actions a
                     cross join lateral (
                       select (p_windows #>> array[a.provider, a.account, a.operation])::bigint as safe_ms) w
                     where a.action_id = q.action_id and w.safe_ms is not null) as ends
              from outbox.work_queue q
             where q.kind = 'unknown' and q.claim_token is null and q.due_at <= v_now and not q.evidence_waiting
             order by q.due_at limit 16 * p_limit) due
     order by case when due.ends > v_now then due.ends end, due.due_at loop
    exit when cardinality(v_ids) >= p_limit;
    -- Row by row: another reconciler may have it by now, and a plan that joins could read a growing table whole.
    v_ids := v_ids || array(
      select q.action_id from outbox.work_queue q
       where q.action_id = v_id and q.kind = 'unknown' and q.claim_token is null and q.due_at <= v_now
         and not q.evidence_waiting for update skip locked);
  end loop;
  for v_id in select unnest(v_ids) as action_id order by 1 loop
    update outbox.work_queue q
       set claim_token = p_token, claimed_until = v_now + p_lease_ms * interval '1 ms', claimed_by = p_worker
     where q.action_id = v_id;
    return next outbox.unknown_case(v_id, p_token, v_now);
  end loop;
end $$;
