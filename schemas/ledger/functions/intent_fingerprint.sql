-- One number for an intent: every part length-prefixed, so that no two intents share one text. Never leaves the database.
create or replace function outbox.intent_fingerprint(
    p_provider text, p_operation text, p_account text, p_recipient text, p_content_version text, p_payload jsonb)
  returns bytea language sql immutable
as $$
  select sha256(convert_to(string_agg(coalesce(length(part)::text || ':' || part, '-'), ',' order by place), 'UTF8'))
    from unnest(array[p_provider, p_operation, p_account, p_recipient, p_content_version, p_payload::text])
      with ordinality as parts (part, place)
$$;
