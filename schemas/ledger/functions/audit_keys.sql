-- Audit, the keys after p_after in order, p_limit of them: every key ever used still has its action, and it is the one that
-- carries the key. Findings name the action, not the key. last is where the next call goes on, null at the end.
create or replace function outbox.audit_keys(
    p_after text, p_limit integer, out looked integer, out last text, out findings jsonb)
  language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  with looked_at as materialized (
    select k.idempotency_key, k.action_id from outbox.keys k
     where k.idempotency_key > coalesce(p_after, '') collate "C" order by k.idempotency_key limit p_limit
  )
  select count(*)::integer, case when count(*) = p_limit then max(l.idempotency_key) end,
         coalesce(jsonb_agg(jsonb_build_object('finding', 'key_without_action', 'subject', l.action_id,
                    'detail', case when a.action_id is null then 'the action of a known key is gone'
                                   else 'the action carries another key' end))
                    filter (where a.idempotency_key is distinct from l.idempotency_key), '[]')
    from looked_at l left join outbox.outbound_actions a using (action_id)
$$;
