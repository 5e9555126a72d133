-- Claims what is due, for as many free slots as each account has; one call for all accounts of a relay.
--   from action_created, retry_scheduled   event claimed   to dispatch_started   actor relay   errors none
-- p_demands: [{"provider", "account", "slots"}]. The oldest open action of an ordering key goes first; where the account
-- says so (not blocks), one that cannot go now is passed: unknown, on hold, or due later. The token names this call: a
-- caller whose COMMIT was lost asks recall_claims with it.
-- A line with many entries before the first that counts is not read from its beginning every time: see note_long_line.
-- Lock order: the token, then queue rows (skipping locked ones), then the ledger.
create or replace function outbox.claim_actions(
    p_demands jsonb, p_token uuid, p_lease_ms integer, p_deadline_ms integer, p_worker text)
  returns setof outbox.claimed_action language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_now timestamptz;
  v_left integer;
  v_demand record;
  v_ids uuid[] := '{}';
  v_id uuid;
  v_many bigint := coalesce(nullif(current_setting('outbox.many_entries', true), '')::bigint, 2000);
  v_noted boolean := coalesce(current_setting('outbox.long_lines', true), '') <> '';
  v_from timestamptz := '-infinity';
  v_read bigint;
  v_began timestamptz;
begin
  perform pg_advisory_xact_lock(hashtextextended(p_token::text, 0));
  v_now := outbox.now();
  for v_demand in select d.provider, d.account, d.slots
                    from jsonb_to_recordset(p_demands) as d (provider text, account text, slots integer) loop
    v_left := least(v_demand.slots, 1000);
    for v_priority in 0..2 loop
      exit when v_left <= 0;
      if v_noted then
        v_from := outbox.scan_from(v_demand.provider, v_demand.account, v_priority, v_now);
      end if;
      v_began := clock_timestamp();
      v_read := pg_stat_get_xact_tuples_returned('outbox.work_queue_dispatch_due'::regclass);
      for v_id in
        select q.action_id from outbox.work_queue q
         where q.provider = v_demand.provider and q.account = v_demand.account and q.priority = v_priority
           and q.kind = 'dispatch' and q.claim_token is null and q.due_at between v_from and v_now
           and not q.evidence_waiting
           and (q.deliver_by is null or q.deliver_by > v_now)
           and (q.ordering_key is null or not exists (
             select from outbox.work_queue e
              where e.provider = q.provider and e.account = q.account and e.ordering_key = q.ordering_key
                and e.position < q.position and (e.blocks or (e.kind = 'dispatch' and e.due_at <= v_now))))
         order by q.due_at limit v_left
           for update skip locked loop
        v_ids := v_ids || v_id;
        v_left := v_left - 1;
      end loop;
      if v_from = '-infinity'
         and pg_stat_get_xact_tuples_returned('outbox.work_queue_dispatch_due'::regclass) - v_read > v_many then
        perform outbox.note_long_line(v_demand.provider, v_demand.account, v_priority, v_now,
                                      clock_timestamp() - v_began);
      end if;
    end loop;
  end loop;
  if v_ids <> '{}' then   -- most polls find nothing, and an empty batch costs as much as a small one
    return query select * from outbox.claim_batch(v_ids, p_token, p_lease_ms, p_deadline_ms, p_worker, v_now);
  end if;
end $$;
