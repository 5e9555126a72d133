-- Retention, first step: removes payload and recipient of actions that settled at least p_days ago, and what their
-- evidence quotes. Open actions and those with an open review are exempt; the key and its fingerprint stay for ever.
-- Looks at p_limit actions, oldest first, from p_after on; looked_until is where the next call goes on, null at the end.
-- Lock order: a settled action has no queue row; ledger rows in order of action_id, skipping locked ones; evidence.
-- Errors: OB011 for less than a day.
create or replace function outbox.redact_settled(
    p_days integer, p_after timestamptz, p_limit integer, out redacted integer, out looked_until timestamptz)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_before timestamptz := outbox.now() - p_days * interval '1 day';
  v_looked uuid[];
  v_ids uuid[];
begin
  if p_days is null or p_days < 1 then
    raise exception 'nothing is redacted before it is a day old' using errcode = 'OB011';
  end if;
  select array_agg(l.action_id), max(l.created_at) into v_looked, looked_until
    from (select a.action_id, a.created_at from outbox.outbound_actions a
           where a.redacted_at is null and a.created_at < v_before and a.created_at > coalesce(p_after, '-infinity')
           order by a.created_at limit p_limit) l;
  if cardinality(v_looked) < p_limit then
    looked_until := null;
  end if;
  v_ids := array(
    select a.action_id from outbox.outbound_actions a
     where a.action_id = any (v_looked) and a.redacted_at is null and a.updated_at < v_before
       and a.delivery_state not in ('delivery_pending', 'delivery_unknown')
       and not exists (select from outbox.reviews r where r.action_id = a.action_id and r.closed_at is null)
     order by a.action_id for update skip locked);
  update outbox.outbound_actions a set payload = '{}', recipient = null, redacted_at = outbox.now()
   where a.action_id = any (v_ids);
  update outbox.evidence e set excerpt = null, headers = '{}', url = null where e.action_id = any (v_ids);
  redacted := cardinality(v_ids);
end $$;
