-- Who the payload says will receive this, by the paths that the contract declares. Empty when it cannot tell.
create or replace function outbox.expected_recipients(p_payload jsonb, p_paths jsonb)
  returns text[] language sql immutable
as $$
  select coalesce(array_agg(candidate order by place, rank), '{}')
    from (
      select place, 0 as rank,
             case jsonb_typeof(found)
               when 'array' then (select string_agg(item, ', ' order by n)
                                    from jsonb_array_elements_text(found) with ordinality as items (item, n))
               else found #>> '{}'
             end as candidate
        from jsonb_array_elements(p_paths) with ordinality as paths (path, place)
        cross join lateral (
          select p_payload #> array(select jsonb_array_elements_text(path)) as found) as looked_up
       where jsonb_typeof(found) in ('string', 'number', 'array')
    ) as candidates
   where candidate is not null
$$;
