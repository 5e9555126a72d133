-- The key as consumers of the status topic may see it: keyed, so that it can be compared but not guessed.
create or replace function outbox.key_hash(p_key text)
  returns text language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select encode(sha256(l.key_hash_secret || convert_to(p_key, 'UTF8')), 'hex') from outbox.ledger l
$$;
