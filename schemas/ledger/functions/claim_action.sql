-- One claim, on a queue row that the caller has locked. Fixes wire key, contract, URL and account before anything is
-- sent, once and for ever.
create or replace function outbox.claim_action(
    p_action_id uuid, p_token uuid, p_lease_ms integer, p_deadline_ms integer, p_worker text, p_now timestamptz)
  returns outbox.claimed_action language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_until timestamptz := p_now + p_lease_ms * interval '1 ms';
  v_action outbox.outbound_actions;
  v_provider outbox.providers;
  v_wire_key text;
  v_due timestamptz;
begin
  select * into v_action from outbox.outbound_actions a where a.action_id = p_action_id;
  select * into v_provider from outbox.providers p
   where p.provider = v_action.provider and p.account = v_action.account and p.operation = v_action.operation;
  v_wire_key := coalesce(v_action.wire_key,
    case when not v_provider.key_shared and length(v_action.idempotency_key) <= v_provider.key_max_length
              and v_action.idempotency_key ~ ('^(?:' || v_provider.key_pattern || ')$')
         then v_action.idempotency_key else outbox.derived_wire_key(v_action.idempotency_key) end);
  update outbox.work_queue q
     set claim_token = p_token, claimed_until = v_until, claimed_by = p_worker, returns_to = v_action.execution_state,
         in_flight_before = v_action.in_flight_until, first_attempt_before = v_action.first_attempt_at
   where q.action_id = p_action_id returning q.due_at into v_due;
  update outbox.outbound_actions a
     set execution_state = 'dispatch_started', last_event = 'claimed', last_actor = 'relay', last_reason = null,
         attempt_count = a.attempt_count + 1, last_attempt_at = p_now,
         first_attempt_at = coalesce(a.first_attempt_at, p_now),
         in_flight_until = greatest(a.in_flight_until, v_until + p_deadline_ms * interval '1 ms'),
         wire_key = v_wire_key,
         contract_version = coalesce(a.contract_version, v_provider.contract_version),
         base_url = coalesce(a.base_url, v_provider.base_url),
         account_identity = coalesce(a.account_identity, v_provider.account_identity)
   where a.action_id = p_action_id
   returning * into v_action;
  return outbox.as_claim(v_action, p_token, v_provider.mode, v_due, p_now);
end $$;
