-- Who the payload says will receive this, by the paths that the contract declares ([["to"], ["to", "0"]]). Empty when it
-- cannot tell. A list is one recipient, joined by commas.
create or replace function outbox.expected_recipients(p_payload jsonb, p_paths jsonb)
  returns text[] language plpgsql immutable set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_found jsonb;
  v_result text[] := '{}';
begin
  -- Step by step and without a query, which would cost more than all that it reads.
  for path in 0 .. jsonb_array_length(p_paths) - 1 loop
    v_found := p_payload;
    for step in 0 .. jsonb_array_length(p_paths -> path) - 1 loop
      v_found := v_found #> array[p_paths -> path ->> step];
    end loop;
    if jsonb_typeof(v_found) = 'array' then
      v_result := v_result || (select string_agg(item, ', ' order by n)
                                 from jsonb_array_elements_text(v_found) with ordinality as items (item, n));
    elsif jsonb_typeof(v_found) in ('string', 'number') then
      v_result := v_result || (v_found #>> '{}');
    end if;
  end loop;
  return array_remove(v_result, null);
end $$;
