-- Commits a replay as an attempt before it is sent, under the reconciler's claim, with a fresh lease.
-- Nothing is returned when the claim is lost, when the action is no longer unknown, when an acceptance arrived that
-- nobody has used yet, after its deadline, or once a cancel was asked for: then it may only be looked up.
create or replace function outbox.begin_replay(
    p_action_id uuid, p_token uuid, p_lease_ms integer, p_deadline_ms integer)
  returns setof outbox.claimed_action language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_queue outbox.work_queue;
  v_action outbox.outbound_actions;
  v_now timestamptz;
  v_mode text;
  v_in_flight timestamptz;
begin
  select q.* into v_queue from outbox.work_queue q
   where q.action_id = p_action_id and q.claim_token = p_token and q.kind = 'unknown' and not q.evidence_waiting
     for update;
  if not found then
    return;
  end if;
  v_now := outbox.now();
  select coalesce(a.in_flight_until, v_now) into v_in_flight
    from outbox.outbound_actions a where a.action_id = p_action_id;
  update outbox.outbound_actions a
     set attempt_count = a.attempt_count + 1, last_attempt_at = v_now,
         in_flight_until = greatest(a.in_flight_until, v_now + (p_lease_ms + p_deadline_ms) * interval '1 ms'),
         event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
         last_event = 'replay_started', last_actor = 'reconciler', last_reason = 'replay'
   where a.action_id = p_action_id and a.delivery_state = 'delivery_unknown' and a.cancel_requested_at is null
     and (a.deliver_by is null or a.deliver_by > v_now)
     and (v_queue.claimed_until > v_now)
   returning * into v_action;
  if not found then
    return;
  end if;
  update outbox.work_queue q
     set claimed_until = v_now + p_lease_ms * interval '1 ms', replays = q.replays + 1,
         in_flight_before = coalesce(v_queue.in_flight_before, v_in_flight)
   where q.action_id = p_action_id;
  select p.mode into v_mode from outbox.providers p
   where p.provider = v_action.provider and p.account = v_action.account and p.operation = v_action.operation;
  return next outbox.as_claim(v_action, p_token, v_mode, v_now, v_now);
end $$;
