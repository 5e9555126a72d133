-- A named person decides; who is the session's own role. One decision, even after two clicks; it fences the resolver.
--   p_decision: confirmed, failed, abandoned, resend (an unknown);  release, cancel (an action on hold)
-- Errors: OB009 no such open review, OB002 not possible in this state, OB011 reason missing.
create or replace function outbox.decide_review(
    p_review_id bigint, p_decision text, p_reason text, p_reference text default null)
  returns text language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_action_id uuid;
  v_queue outbox.work_queue;
begin
  if coalesce(btrim(p_reason), '') = '' then
    raise exception 'a decision needs a reason' using errcode = 'OB011';
  end if;
  select r.action_id into v_action_id from outbox.reviews r where r.review_id = p_review_id;
  select q.* into v_queue from outbox.work_queue q where q.action_id = v_action_id for update;
  perform from outbox.reviews r where r.review_id = p_review_id and r.closed_at is null for update;
  if not found then
    raise exception 'review % is not open', p_review_id using errcode = 'OB009';
  end if;
  if p_decision in ('confirmed', 'failed', 'abandoned', 'resend') and v_queue.kind = 'unknown' then
    if p_decision = 'resend' and exists (select from outbox.outbound_actions a
        where a.action_id = v_action_id and a.cancel_requested_at is not null) then
      raise exception 'a cancel was asked for: it is not sent again' using errcode = 'OB002',
        hint = 'Decide failed when the provider does not have it.';
    end if;
    perform outbox.record_evidence(v_action_id, jsonb_build_object('kind', 'statement', 'proves', 'nothing',
      'reason', p_decision, 'excerpt', left(p_reason, 2000), 'provider_id', p_reference));
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           execution_state = case p_decision when 'resend' then 'retry_scheduled' else 'dispatch_finished' end,
           delivery_state = case p_decision when 'confirmed' then 'reconciled_confirmed'
             when 'failed' then 'reconciled_failed' when 'abandoned' then 'abandoned' else 'delivery_pending' end,
           last_event = 'decided_' || p_decision, last_actor = 'operator', last_reason = 'decided_' || p_decision,
           provider_id = coalesce(p_reference, a.provider_id),
           resolution = case p_decision when 'resend' then null else 'operator' end,
           retries_from = a.attempt_count
     where a.action_id = v_action_id;
    perform outbox.close_review(v_action_id, p_decision, p_reason, session_user);
    if p_decision = 'resend' then
      -- Not before the last attempt's bytes can no longer be on their way.
      perform outbox.requeue(v_action_id, 'dispatch', (
        select greatest(outbox.now(), a.in_flight_until)
          from outbox.outbound_actions a where a.action_id = v_action_id));
    else
      delete from outbox.work_queue q where q.action_id = v_action_id;
      perform outbox.weigh_evidence(v_action_id);
    end if;
    return 'applied';
  elsif p_decision = 'release' and v_queue.kind = 'hold' then
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           execution_state = 'retry_scheduled', last_event = 'hold_released', last_actor = 'operator',
           last_reason = 'hold_released', hold_released_at = outbox.now(), retries_from = a.attempt_count
     where a.action_id = v_action_id;
    perform outbox.requeue(v_action_id, 'dispatch', outbox.now());
  elsif p_decision = 'cancel' and v_queue.kind = 'hold' then
    perform outbox.cancel_action(v_action_id, 'operator', 'cancelled_by_operator');
  elsif p_decision = 'noted' and v_queue is null then
    null;                                       -- a settled action: the review alone is closed
  else
    raise exception '% is not possible: the action is %', p_decision,
      coalesce('in the queue as ' || v_queue.kind, 'settled') using errcode = 'OB002';
  end if;
  perform outbox.close_review(v_action_id, p_decision, p_reason, session_user);
  return 'applied';
end $$;
