-- BEFORE UPDATE, DELETE or TRUNCATE on what is history: refused, whoever tries. Errors: OB002.
create or replace function outbox.refuse_change()
  returns trigger language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  raise exception '% on outbox.% is not possible: it is history', lower(tg_op), tg_table_name using errcode = 'OB002';
end $$;
