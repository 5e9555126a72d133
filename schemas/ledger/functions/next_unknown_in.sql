-- Seconds until the reconciler has something to look at; 0 when it has, null when nothing is open.
create or replace function outbox.next_unknown_in()
  returns double precision language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select case when exists (select from outbox.work_queue q where q.evidence_waiting and q.claim_token is null) then 0
    else (select extract(epoch from greatest(q.due_at - outbox.now(), interval '0'))::double precision
            from outbox.work_queue q
           where q.kind = 'unknown' and q.claim_token is null and q.due_at < 'infinity'
           order by q.due_at limit 1) end
$$;
