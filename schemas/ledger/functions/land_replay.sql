-- The owner of a replay reported that its socket is closed: what was in flight before it counts again.
create or replace function outbox.land_replay(p_queue outbox.work_queue)
  returns void language sql volatile set search_path = pg_catalog, outbox, pg_temp
as $$
  update outbox.outbound_actions a set in_flight_until = greatest(p_queue.in_flight_before, outbox.now())
   where a.action_id = p_queue.action_id and p_queue.kind = 'unknown' and p_queue.in_flight_before is not null
$$;
