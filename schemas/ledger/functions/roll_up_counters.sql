-- Adds deltas to the totals and removes them, in one statement. One roll-up at a time; others skip.
create or replace function outbox.roll_up_counters(p_limit integer default 10000)
  returns integer language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare v_count integer;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('outbox.roll_up_counters', 0)) then
    return 0;
  end if;
  with taken as (
    delete from outbox.counter_deltas d
     where d.delta_id in (select x.delta_id from outbox.counter_deltas x order by x.delta_id limit p_limit)
    returning d.provider, d.account, d.name, d.amount
  ), added as (
    insert into outbox.counters as c (provider, account, name, total)
      select t.provider, t.account, t.name, sum(t.amount) from taken t where t.name <> 'probe' group by 1, 2, 3
      on conflict (provider, account, name) do update set total = c.total + excluded.total
  )
  select count(*) into v_count from taken;
  return v_count;
end $$;
