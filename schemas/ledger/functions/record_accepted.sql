-- The acceptances of a batch whose claims still hold, in two statements: the common case. The caller holds the queue
-- rows. Everything else (stale, refused, unknown, with evidence waiting) is left to record_outcome.
-- By primary key whatever the statistics say (see claim_batch).
create or replace function outbox.record_accepted(p_outcomes jsonb)
  returns setof outbox.work_queue language plpgsql set search_path = pg_catalog, outbox, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare v_ids uuid[];
begin
  with changed as (
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           execution_state = 'dispatch_finished', delivery_state = 'delivery_confirmed', last_event = 'accepted',
           last_actor = 'relay', last_reason = o.reason, last_error = o.message, provider_id = o.provider_id,
           resolution = 'response', in_flight_until = q.in_flight_before
      from jsonb_to_recordset(p_outcomes) as o (
             action_id uuid, claim_token uuid, event text, reason text, provider_id text, message text)
      join outbox.work_queue q on q.action_id = o.action_id and q.claim_token = o.claim_token
     where o.event = 'accepted' and q.kind = 'dispatch' and not q.evidence_waiting
       and a.action_id = o.action_id and a.execution_state = 'dispatch_started'
    returning a.action_id)
  select array_agg(c.action_id) into v_ids from changed c;
  return query delete from outbox.work_queue q where q.action_id = any (v_ids) returning q.*;
end $$;
