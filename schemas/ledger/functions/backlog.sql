-- What waits, per account: due now, scheduled for later, claimed, on hold, unknown, and how long the oldest has waited.
create or replace function outbox.backlog()
  returns table (provider text, account text, due bigint, scheduled bigint, claimed bigint, on_hold bigint,
                 unknown bigint, oldest_due_age_s double precision, oldest_unknown_age_s double precision)
  language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select q.provider, q.account,
         count(*) filter (where q.kind = 'dispatch' and q.claim_token is null and q.due_at <= outbox.now()),
         count(*) filter (where q.kind = 'dispatch' and q.claim_token is null and q.due_at > outbox.now()),
         count(*) filter (where q.kind = 'dispatch' and q.claim_token is not null),
         count(*) filter (where q.kind = 'hold'),
         count(*) filter (where q.kind = 'unknown'),
         extract(epoch from outbox.now() - min(q.due_at) filter (
           where q.kind = 'dispatch' and q.claim_token is null and q.due_at <= outbox.now()))::double precision,
         extract(epoch from outbox.now() - min(a.unknown_since) filter (
           where q.kind = 'unknown'))::double precision
    from outbox.work_queue q left join outbox.outbound_actions a
      on a.action_id = q.action_id and q.kind = 'unknown'
   group by 1, 2
$$;
