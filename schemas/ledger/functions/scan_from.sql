-- From which due time on a line of the queue is read: from its beginning, unless this session has noted that it is long.
create or replace function outbox.scan_from(
    p_provider text, p_account text, p_priority integer, p_now timestamptz)
  returns timestamptz language sql stable set search_path = pg_catalog, outbox, pg_temp
as $$
  select coalesce((select (noted.line ->> 'from')::timestamptz
                     from (select nullif(current_setting('outbox.long_lines', true), '')::jsonb
                                  -> jsonb_build_array(p_provider, p_account, p_priority)::text) as noted (line)
                    where (noted.line ->> 'until')::timestamptz > p_now), '-infinity')
$$;
