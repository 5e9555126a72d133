-- Audit, the sums: created equals the actions in all states, per account, in the snapshot of the calling statement; and
-- no queue row is without its action. Returns one row per finding; none when everything adds up.
create or replace function outbox.audit_totals()
  returns table (finding text, subject text, detail text)
  language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  with created as (
    select u.provider, u.account, sum(u.amount) as total
      from (select provider, account, total as amount from outbox.counters where name = 'created'
            union all
            select provider, account, amount from outbox.counter_deltas where name = 'created') u
     group by 1, 2
  ), held as (
    select a.provider, a.account, count(*) as total from outbox.outbound_actions a group by 1, 2
  )
  select 'created_differs', provider || '/' || account,
         format('%s created, %s in the ledger', coalesce(c.total, 0), coalesce(h.total, 0))
    from created c full join held h using (provider, account)
   where coalesce(c.total, 0) <> coalesce(h.total, 0)
  union all
  select 'queued_without_action', q.action_id::text, 'in the queue as ' || q.kind
    from outbox.work_queue q
   where not exists (select from outbox.outbound_actions a where a.action_id = q.action_id)
$$;
