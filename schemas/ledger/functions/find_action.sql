-- One action by its id or its idempotency key.
create or replace function outbox.find_action(p_key_or_id text)
  returns setof jsonb language sql stable security definer
  set search_path = pg_catalog, outbox, pg_temp
as $$
  select to_jsonb(s) from outbox.action_summary s
   where s.idempotency_key = p_key_or_id
      or s.action_id = (select k.action_id from outbox.keys k where k.idempotency_key = p_key_or_id)
      or (p_key_or_id ~ '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' and s.action_id = nullif(
            case when p_key_or_id ~ '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' then p_key_or_id end, '')::uuid)
   limit 1
$$;
