-- The value of a record on the status topic. No payload, recipient, tenant or key: logical decoding ignores every
-- other protection, so what stands here is public to all consumers.
create or replace function outbox.event_data(
    p_action outbox.outbound_actions, p_event text, p_from_execution text, p_from_delivery text, p_time text,
    p_key_hash text)
  returns text language sql immutable
as $$
  select json_build_object(
    'action_id', (p_action).action_id, 'provider', (p_action).provider, 'account', (p_action).account,
    'operation', (p_action).operation, 'event', p_event,
    'execution_state', (p_action).execution_state, 'delivery_state', (p_action).delivery_state,
    'receipt_state', (p_action).receipt_state,
    'previous_execution_state', p_from_execution, 'previous_delivery_state', p_from_delivery,
    'attempt', (p_action).attempt_count, 'reason', (p_action).last_reason,
    'provider_id', (p_action).provider_id, 'resolution', (p_action).resolution,
    'key_hash', p_key_hash, 'occurred_at', p_time)::text
$$;
