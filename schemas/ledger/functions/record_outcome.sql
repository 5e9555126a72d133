-- One outcome under the caller's claim; the caller holds the queue row.
--   from dispatch_started   actor relay   events accepted, refused, response_lost, no_effect, held, released
-- Returns applied or stale. An event that is not a relay's own raises OB002.
create or replace function outbox.record_outcome(
    p_queue outbox.work_queue, p_event text, p_reason text, p_provider_id text, p_retry_in_ms bigint, p_message text,
    p_evidence jsonb)
  returns text language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  if not exists (select from outbox.outbound_actions a
                  where a.action_id = p_queue.action_id and a.execution_state = 'dispatch_started') then
    return 'stale';
  end if;
  if p_evidence is not null and p_event <> 'accepted' then
    perform outbox.record_evidence(p_queue.action_id, p_evidence);
  end if;
  if p_event in ('accepted', 'refused') then
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           execution_state = 'dispatch_finished',
           delivery_state = case p_event when 'accepted' then 'delivery_confirmed' else 'delivery_rejected' end,
           last_event = p_event, last_actor = 'relay', last_reason = p_reason, last_error = p_message,
           provider_id = p_provider_id, resolution = 'response', in_flight_until = p_queue.in_flight_before
     where a.action_id = p_queue.action_id;
    delete from outbox.work_queue q where q.action_id = p_queue.action_id;
    if p_queue.evidence_waiting then
      perform outbox.weigh_evidence(p_queue.action_id);
    end if;
  elsif p_event = 'response_lost' then
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           execution_state = 'dispatch_finished', delivery_state = 'delivery_unknown',
           last_event = p_event, last_actor = 'relay', last_reason = p_reason, last_error = p_message,
           unknown_since = outbox.now(),
           in_flight_until = greatest(p_queue.in_flight_before, outbox.now())   -- this attempt's socket is closed
     where a.action_id = p_queue.action_id;
    perform outbox.requeue(p_queue.action_id, 'unknown', outbox.now());
  elsif p_event in ('no_effect', 'held', 'released') then
    perform outbox.record_unsent(p_queue, p_event, p_reason, p_retry_in_ms, p_message);
  else
    raise exception 'a relay cannot report %', p_event using errcode = 'OB002';
  end if;
  return 'applied';
end $$;
