-- Locks the queue rows of a batch ([{"action_id", ...}]) in order of action_id: the one lock order of the ledger.
create or replace function outbox.lock_queue(p_batch jsonb)
  returns void language plpgsql set search_path = pg_catalog, outbox, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  perform from outbox.work_queue q
    where q.action_id in (select b.action_id from jsonb_to_recordset(p_batch) as b (action_id uuid))
    order by q.action_id for update;
end $$;
