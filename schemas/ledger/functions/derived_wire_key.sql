-- A key for a provider that cannot take the agent's: 128 bits of sha256(ledger id, key), 22 characters of base 62.
-- Derived once, then stored; it fits every slot known (provider-contract limits: docs/providers.md).
create or replace function outbox.derived_wire_key(p_key text)
  returns text language plpgsql stable set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_alphabet constant text := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
  v_digest bytea;
  v_number numeric := 0;
  v_result text := '';
begin
  select sha256(convert_to(l.ledger_id::text || ':' || p_key, 'UTF8')) into v_digest from outbox.ledger l;
  for i in 0..15 loop
    v_number := v_number * 256 + get_byte(v_digest, i);
  end loop;
  for i in 1..22 loop
    v_result := substr(v_alphabet, (v_number % 62)::integer + 1, 1) || v_result;
    v_number := div(v_number, 62);
  end loop;
  return v_result;
end $$;
