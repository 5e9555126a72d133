-- One number for an intent: every part length-prefixed, so that no two intents share one text. Never leaves the database.
-- Stable, as || is of a number and a text, so that it is inlined.
create or replace function outbox.intent_fingerprint(
    p_provider text, p_operation text, p_account text, p_recipient text, p_content_version text, p_payload text)
  returns bytea language sql stable
as $$
  select sha256(convert_to(
    length(p_provider) || ':' || p_provider || length(p_operation) || ':' || p_operation
      || length(p_account) || ':' || p_account || coalesce(length(p_recipient) || ':' || p_recipient, '-')
      || coalesce(length(p_content_version) || ':' || p_content_version, '-') || length(p_payload) || ':' || p_payload,
    'UTF8'))
$$;
