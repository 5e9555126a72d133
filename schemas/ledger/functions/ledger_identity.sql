-- Which ledger this is, for programs that must not write to another environment's.
create or replace function outbox.ledger_identity(out ledger_id uuid, out environment text, out schema_version integer)
  language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$ select l.ledger_id, l.environment, outbox.schema_version() from outbox.ledger l $$;
