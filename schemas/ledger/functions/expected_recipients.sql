-- Who the payload says will receive this, by the paths that the contract declares ([["to"], ["to", "0"]]). Empty when it
-- cannot tell. A list is one recipient, joined by commas.
create or replace function outbox.expected_recipients(p_payload jsonb, p_paths jsonb)
  returns text[] language plpgsql immutable set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_path jsonb;
  v_found jsonb;
  v_result text[] := '{}';
begin
  for v_path in select jsonb_array_elements(p_paths) loop
    v_found := p_payload #> array(select jsonb_array_elements_text(v_path));
    if jsonb_typeof(v_found) = 'array' then
      v_result := v_result || (select string_agg(item, ', ' order by n)
                                 from jsonb_array_elements_text(v_found) with ordinality as items (item, n));
    elsif jsonb_typeof(v_found) in ('string', 'number') then
      v_result := v_result || (v_found #>> '{}');
    end if;
  end loop;
  return array_remove(v_result, null);
end $$;
