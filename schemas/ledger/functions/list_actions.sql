-- Actions for people and programs that may see all of them: newest first, never payload or recipient.
create or replace function outbox.list_actions(
    p_provider text default null, p_execution text default null, p_delivery text default null,
    p_created_by text default null, p_limit integer default 50)
  returns setof jsonb language sql stable security definer
  set search_path = pg_catalog, outbox, pg_temp
as $$
  select to_jsonb(s) from outbox.action_summary s
   where (p_provider is null or s.provider = p_provider) and (p_execution is null or s.execution_state = p_execution)
     and (p_delivery is null or s.delivery_state = p_delivery)
     and (p_created_by is null or s.created_by = p_created_by)
   order by s.created_at desc, s.action_id desc limit least(p_limit, 10000)
$$;
