-- Notes in this session that a line of the queue has many entries before the first that counts. As long as anybody in
-- the database holds an old snapshot, whatever was claimed and finished since lies there and is read again by every
-- claim. For a second, or twenty times as long as the scan took, claims begin at the oldest action that is open now, less
-- five seconds for what is not committed yet. What comes to lie before that all the same, such as a claim that was given
-- back, waits for as long. Any session's note is as good: it only says what need not be read again so soon.
create or replace function outbox.note_long_line(
    p_provider text, p_account text, p_priority integer, p_now timestamptz, p_took interval)
  returns void language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_noted jsonb := coalesce(nullif(current_setting('outbox.long_lines', true), '')::jsonb, '{}');
  v_oldest timestamptz;
begin
  select q.due_at into v_oldest from outbox.work_queue q
   where q.provider = p_provider and q.account = p_account and q.priority = p_priority and q.kind = 'dispatch'
     and q.claim_token is null
   order by q.due_at limit 1;
  v_noted := v_noted || jsonb_build_object(
    jsonb_build_array(p_provider, p_account, p_priority)::text,
    jsonb_build_object('from', least(v_oldest, p_now - interval '5 seconds'),
                       'until', p_now + greatest(interval '1 second', 20 * p_took)));
  perform set_config('outbox.long_lines', v_noted::text, false);
end $$;
