-- A claimed action as the relay and the reconciler receive it. The payload is the text that the database holds.
create or replace function outbox.as_claim(
    p_action outbox.outbound_actions, p_token uuid, p_mode text, p_due_at timestamptz, p_now timestamptz)
  returns outbox.claimed_action language sql stable
as $$
  select row((p_action).action_id, p_token, (p_action).attempt_count, (p_action).provider, (p_action).account,
    (p_action).operation,
    case when p_mode = 'hold' and (p_action).hold_released_at is not null then 'live' else p_mode end,
    (p_action).idempotency_key, (p_action).wire_key, (p_action).recipient, (p_action).payload::text,
    (p_action).contract_version, (p_action).base_url, (p_action).account_identity, (p_action).ordering_key,
    (p_action).created_at, (p_action).first_attempt_at,
    extract(epoch from p_now - least(p_due_at, p_now))::double precision,
    (p_action).traceparent)::outbox.claimed_action
$$;
