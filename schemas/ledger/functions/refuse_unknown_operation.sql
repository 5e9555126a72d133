-- Says what exists instead. Errors: OB003, always.
create or replace function outbox.refuse_unknown_operation(p_provider text, p_account text, p_operation text)
  returns void language plpgsql stable set search_path = pg_catalog, outbox, pg_temp
as $$
declare v_known text;
begin
  select string_agg(format('%s/%s %s', p.provider, p.account, p.operation), ', ' order by p.provider, p.account, p.operation)
    into v_known
    from (select * from outbox.providers p where p.declared
           order by p.provider = p_provider desc, p.account = p_account desc, p.operation limit 10) p;
  raise exception 'no operation % of provider % in account % is declared in this ledger',
    coalesce(quote_literal(p_operation), 'null'), coalesce(quote_literal(p_provider), 'null'),
    coalesce(quote_literal(p_account), 'null')
    using errcode = 'OB003',
          detail = 'Declared: ' || coalesce(v_known, 'nothing yet') || '.',
          hint = 'Use a declared one, or declare it in the providers file and run: outbox providers apply';
end $$;
