-- Can this ledger store an outcome? A write that the next roll-up takes away; raises what an outcome would raise.
create or replace function outbox.probe_write()
  returns void language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  insert into outbox.counter_deltas (provider, account, name, amount) values ('', '', 'probe', 0);
end $$;
