-- The value of a record on the status topic. No payload, recipient, tenant or key: logical decoding ignores every
-- other protection, so what stands here is public to all consumers. The key appears keyed and hashed, so that it can be
-- compared but not guessed. Stable, as to_json is, and of scalars, so that it is inlined. Put together as text, because
-- json_build_object looks up the type of every part anew; what is free text goes through to_json, the rest are names of
-- states.toml, numbers and instants.
create or replace function outbox.event_data(
    p_action_id uuid, p_provider text, p_account text, p_operation text, p_event text, p_execution text,
    p_delivery text, p_receipt text, p_from_execution text, p_from_delivery text, p_attempt integer, p_reason text,
    p_provider_id text, p_resolution text, p_key_hash_secret bytea, p_key text, p_at timestamptz)
  returns text language sql stable
as $$
  select concat(
    '{"action_id":"', p_action_id, '","provider":', to_json(p_provider), ',"account":', to_json(p_account),
    ',"operation":', to_json(p_operation), ',"event":"', p_event, '","execution_state":"', p_execution,
    '","delivery_state":"', p_delivery, '","receipt_state":"', p_receipt,
    '","previous_execution_state":', coalesce('"' || p_from_execution || '"', 'null'),
    ',"previous_delivery_state":', coalesce('"' || p_from_delivery || '"', 'null'),
    ',"attempt":', p_attempt, ',"reason":', coalesce(to_json(p_reason)::text, 'null'),
    ',"provider_id":', coalesce(to_json(p_provider_id)::text, 'null'),
    ',"resolution":', coalesce('"' || p_resolution || '"', 'null'),
    ',"key_hash":"', encode(sha256(p_key_hash_secret || convert_to(p_key, 'UTF8')), 'hex'),
    '","occurred_at":"', outbox.rfc3339(p_at), '"}')
$$;
