-- Own changes since a cursor, safe against late commits: only transactions older than every open one are shown, so
-- that nothing can appear behind the cursor. Start with an empty cursor; keep the last one returned.
create or replace function outbox.changes(p_cursor text default '', p_limit integer default 100)
  returns table (cursor text, action_id uuid, sequence integer, type text, data jsonb)
  language plpgsql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare
  v_parts text[] := string_to_array(nullif(p_cursor, ''), '/');
begin
  if v_parts is not null and p_cursor !~ '^[0-9]{1,19}/[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}/[0-9]{1,9}$' then
    raise exception 'not a cursor of outbox.changes' using errcode = 'OB010', hint = 'Start again with an empty cursor.';
  end if;
  return query
    select format('%s/%s/%s', e.transaction_id, e.action_id, e.sequence), e.action_id, e.sequence, e.type,
           e.data::jsonb
      from outbox.action_events e
     where e.created_by = session_user
       and e.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
       and (v_parts is null or (e.transaction_id, e.action_id, e.sequence)
                               > (v_parts[1]::xid8, v_parts[2]::uuid, v_parts[3]::integer))
     order by e.transaction_id, e.action_id, e.sequence
     limit least(greatest(p_limit, 1), 1000);
end $$;
