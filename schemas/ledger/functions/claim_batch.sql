-- The claims of one call, on queue rows that the caller has locked: two statements for all of them. Fixes wire key,
-- contract, URL and account before anything is sent, once and for ever.
-- By primary key whatever the statistics say: with fresh ones a planner may scan the whole ledger for a batch.
create or replace function outbox.claim_batch(
    p_ids uuid[], p_token uuid, p_lease_ms integer, p_deadline_ms integer, p_worker text, p_now timestamptz)
  returns setof outbox.claimed_action language plpgsql set search_path = pg_catalog, outbox, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_until timestamptz := p_now + p_lease_ms * interval '1 ms';
begin
  update outbox.work_queue q
     set claim_token = p_token, claimed_until = v_until, claimed_by = p_worker, returns_to = a.execution_state,
         in_flight_before = a.in_flight_until, first_attempt_before = a.first_attempt_at
    from outbox.outbound_actions a
   where q.action_id = any (p_ids) and a.action_id = q.action_id;
  return query
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           execution_state = 'dispatch_started', last_event = 'claimed', last_actor = 'relay', last_reason = null,
           attempt_count = a.attempt_count + 1, last_attempt_at = p_now,
           first_attempt_at = coalesce(a.first_attempt_at, p_now),
           in_flight_until = greatest(a.in_flight_until, v_until + p_deadline_ms * interval '1 ms'),
           wire_key = coalesce(a.wire_key,
             case when not p.key_shared and length(a.idempotency_key) <= p.key_max_length
                       and a.idempotency_key ~ ('^(?:' || p.key_pattern || ')$')
                  then a.idempotency_key else outbox.derived_wire_key(a.idempotency_key) end),
           contract_version = coalesce(a.contract_version, p.contract_version),
           base_url = coalesce(a.base_url, p.base_url),
           account_identity = coalesce(a.account_identity, p.account_identity)
      from outbox.work_queue q, outbox.providers p
     where a.action_id = any (p_ids) and q.action_id = a.action_id
       and p.provider = a.provider and p.account = a.account and p.operation = a.operation
    returning a.action_id, p_token, a.attempt_count, a.provider, a.account, a.operation,
      case when p.mode = 'hold' and a.hold_released_at is not null then 'live' else p.mode end,
      a.idempotency_key, a.wire_key, a.recipient, a.payload::text, a.contract_version, a.base_url, a.account_identity,
      a.ordering_key, a.created_at, a.first_attempt_at,
      extract(epoch from p_now - least(q.due_at, p_now))::double precision, a.traceparent;
end $$;
