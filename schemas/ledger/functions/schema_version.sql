-- The newest migration applied; a program built for another major ledger refuses to start.
create or replace function outbox.schema_version()
  returns integer language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$ select coalesce(max(version), 0) from outbox.schema_migrations $$;
