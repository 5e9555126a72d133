-- What a reviewer must see of an action: recipient, approved content and what its first claim fixed.
create or replace function outbox.action_request(p_action_id uuid)
  returns jsonb language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select jsonb_build_object(
    'recipient', a.recipient, 'content_version', a.content_version, 'payload', a.payload::text,
    'wire_key', a.wire_key, 'contract_version', a.contract_version, 'base_url', a.base_url,
    'account_identity', a.account_identity, 'first_attempt_at', a.first_attempt_at,
    'last_attempt_at', a.last_attempt_at, 'in_flight_until', a.in_flight_until, 'deliver_by', a.deliver_by,
    'cancel_requested_at', a.cancel_requested_at, 'follows_action_id', a.follows_action_id,
    'created_by', a.created_by, 'tenant', a.tenant)
    from outbox.outbound_actions a where a.action_id = p_action_id
$$;
