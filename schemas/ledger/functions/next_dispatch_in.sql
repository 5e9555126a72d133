-- Seconds until the earliest due action of these accounts; 0 when one is due, null when nothing is open.
-- p_accounts: [{"provider", "account"}].
create or replace function outbox.next_dispatch_in(p_accounts jsonb)
  returns double precision language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select extract(epoch from greatest(min(first.due_at) - clock_timestamp(), interval '0'))::double precision
    from jsonb_to_recordset(p_accounts) as d (provider text, account text)
    cross join generate_series(0, 2) as level (priority)
    cross join lateral (
      select q.due_at from outbox.work_queue q
       where q.provider = d.provider and q.account = d.account and q.priority = level.priority
         and q.kind = 'dispatch' and q.claim_token is null
       order by q.due_at limit 1) as first
$$;
