-- What is declared now, for a program that compares it with its own configuration.
create or replace function outbox.declared_accounts()
  returns setof outbox.providers language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$ select p.* from outbox.providers p where p.declared order by p.provider, p.account, p.operation $$;
