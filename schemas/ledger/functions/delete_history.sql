-- Retention, second step: deletes the events and the evidence of actions that were redacted at least p_redacted_days ago
-- (so they are settled) and whose last change is at least p_days old, and notes that it did. The row, its key and its reviews stay.
-- Looks at p_limit actions from p_after on; looked_until is where the next call goes on, null at the end.
-- Lock order: as in redact_settled, then events. Errors: OB011 for less than a day.
create or replace function outbox.delete_history(
    p_days integer, p_redacted_days integer, p_after timestamptz, p_limit integer,
    out deleted integer, out looked_until timestamptz)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_now timestamptz := outbox.now();
  v_looked uuid[];
  v_ids uuid[];
begin
  if p_days is null or p_days < 1 then
    raise exception 'no history is deleted before it is a day old' using errcode = 'OB011';
  end if;
  select array_agg(l.action_id), max(l.redacted_at) into v_looked, looked_until
    from (select a.action_id, a.redacted_at from outbox.outbound_actions a
           where a.redacted_at is not null and a.history_deleted_at is null
             and a.redacted_at <= v_now - greatest(p_redacted_days, 0) * interval '1 day'
             and a.redacted_at > coalesce(p_after, '-infinity')
           order by a.redacted_at limit p_limit) l;
  if cardinality(v_looked) < p_limit then
    looked_until := null;
  end if;
  v_ids := array(
    select a.action_id from outbox.outbound_actions a
     where a.action_id = any (v_looked) and a.history_deleted_at is null
       and a.updated_at < v_now - p_days * interval '1 day'
       and not exists (select from outbox.reviews r where r.action_id = a.action_id and r.closed_at is null)
     order by a.action_id for update skip locked);
  update outbox.outbound_actions a set history_deleted_at = v_now where a.action_id = any (v_ids);
  delete from outbox.action_events e where e.action_id = any (v_ids);
  delete from outbox.evidence e where e.action_id = any (v_ids);
  deleted := cardinality(v_ids);
end $$;
