-- BEFORE DELETE on action_events: history goes only with a settled action's whole history, and only after that was noted
-- on the action (delete_history), so that retention and loss can be told apart. Errors: OB002.
create or replace function outbox.guard_history()
  returns trigger language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  if not exists (select from outbox.outbound_actions a
                  where a.action_id = old.action_id and a.history_deleted_at is not null) then
    raise exception 'delete on outbox.action_events is not possible: it is history' using errcode = 'OB002';
  end if;
  return old;
end $$;
