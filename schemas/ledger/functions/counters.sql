-- Created (from the deltas) and the actions in every state (from the ledger), in one snapshot: the two must add up.
create or replace function outbox.action_counters()
  returns jsonb language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select jsonb_build_object(
    'created', coalesce((
      select jsonb_agg(jsonb_build_object('provider', c.provider, 'account', c.account, 'total', c.total))
        from (select u.provider, u.account, sum(u.amount) as total
                from (select provider, account, total as amount from outbox.counters where name = 'created'
                      union all
                      select provider, account, amount from outbox.counter_deltas where name = 'created') u
               group by 1, 2) c), '[]'),
    'states', coalesce((
      select jsonb_agg(to_jsonb(s))
        from (select a.provider, a.account, a.execution_state, a.delivery_state, a.receipt_state, a.resolution,
                     count(*) as total, count(*) filter (where a.duplicate_suspected) as duplicates_suspected
                from outbox.outbound_actions a group by 1, 2, 3, 4, 5, 6) s), '[]'),
    'awaiting_review', coalesce((
      select jsonb_agg(to_jsonb(r))
        from (select a.provider, a.account, r.owner, count(*) as total,
                     extract(epoch from outbox.now() - min(r.opened_at))::double precision as oldest_age_s
                from outbox.reviews r join outbox.outbound_actions a using (action_id)
               where r.closed_at is null group by 1, 2, 3) r), '[]'))
$$;
