-- An instant as CloudEvents and people read it: RFC 3339, UTC, microseconds.
create or replace function outbox.rfc3339(p_at timestamptz)
  returns text language sql stable
as $$ select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;
