-- Seconds until the earliest action of these accounts that claim_actions would claim; 0 when one is due, null when
-- there is none. An action behind its ordering head is not due: a poll for it would come back empty, at once, for ever.
-- p_accounts: [{"provider", "account"}].
create or replace function outbox.next_dispatch_in(p_accounts jsonb)
  returns double precision language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  -- Not greatest(min(...), 0): greatest passes over null, and an empty queue would be due at once, for ever.
  select extract(epoch from min(greatest(first.due_at - outbox.now(), interval '0')))::double precision
    from jsonb_to_recordset(p_accounts) as d (provider text, account text)
    cross join generate_series(0, 2) as level (priority)
    cross join lateral (
      select q.due_at from outbox.work_queue q
       where q.provider = d.provider and q.account = d.account and q.priority = level.priority
         and q.kind = 'dispatch' and q.claim_token is null and not q.evidence_waiting
         and q.due_at >= outbox.scan_from(d.provider, d.account, level.priority, outbox.now())
         and (q.deliver_by is null or q.deliver_by > outbox.now())
         and (q.ordering_key is null or not exists (
           select from outbox.work_queue e
            where e.provider = q.provider and e.account = q.account and e.ordering_key = q.ordering_key
              and e.position < q.position and (e.blocks or (e.kind = 'dispatch' and e.due_at <= outbox.now()))))
       order by q.due_at limit 1) as first
$$;
