-- Own changes since a cursor, safe against late commits: only transactions older than every open one are shown, so
-- that nothing can appear behind the cursor. Start with an empty cursor; keep the last one returned.
-- In order per action too: a transaction may have begun before the one whose change it follows (a claim of many
-- accounts, a batch that waited). Such a change is led by the newest transaction among those up to it, and is shown with
-- that one's change. The fences (a scalar subquery, offset 0) keep every plan to index reads of one action.
create or replace function outbox.changes(p_cursor text default '', p_limit integer default 100)
  returns table (cursor text, action_id uuid, sequence integer, type text, data jsonb)
  language plpgsql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare
  v_parts text[] := string_to_array(nullif(p_cursor, ''), '/');
  v_limit integer := least(greatest(p_limit, 1), 1000);
  v_transaction xid8 := '0';
  v_action uuid := '00000000-0000-0000-0000-000000000000';
  v_leader integer := 0;
  v_sequence integer := 0;
begin
  if v_parts is not null and p_cursor !~ '^[0-9]{1,19}/[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}/[0-9]{1,9}$' then
    raise exception 'not a cursor of outbox.changes' using errcode = 'OB010', hint = 'Start again with an empty cursor.';
  end if;
  if v_parts is not null then
    v_transaction := v_parts[1]::xid8;
    v_action := v_parts[2]::uuid;
    v_sequence := v_parts[3]::integer;
    -- What the leader leads may be shown in part.
    v_leader := coalesce((
      select max(e.sequence) from outbox.action_events e
       where e.transaction_id = v_transaction and e.action_id = v_action and e.sequence <= v_sequence), v_sequence);
  end if;
  return query
    select format('%s/%s/%s', l.transaction_id, e.action_id, e.sequence), e.action_id, e.sequence, e.type, e.data::jsonb
      from (
        select h.transaction_id, h.action_id, h.sequence from outbox.action_events h
         where h.created_by = session_user
           and h.transaction_id < pg_snapshot_xmin(pg_current_snapshot())
           and (h.transaction_id, h.action_id, h.sequence) >= (v_transaction, v_action, v_leader)
           and h.sequence = (
             select b.sequence from outbox.action_events b
              where b.action_id = h.action_id and b.sequence <= h.sequence
              order by b.transaction_id desc, b.sequence desc limit 1)
         -- One more, because all that the first one leads may have been shown.
         order by h.transaction_id, h.action_id, h.sequence limit v_limit + 1
      ) l
     cross join lateral (
       select f.action_id, f.sequence, f.type, f.data from outbox.action_events f
        where f.action_id = l.action_id and f.sequence >= l.sequence
          and l.sequence = (
            select b.sequence from outbox.action_events b
             where b.action_id = f.action_id and b.sequence <= f.sequence
             order by b.transaction_id desc, b.sequence desc limit 1)
       offset 0
     ) e
     where (l.transaction_id, l.action_id) <> (v_transaction, v_action) or e.sequence > v_sequence
     order by l.transaction_id, l.action_id, e.sequence
     limit v_limit;
end $$;
