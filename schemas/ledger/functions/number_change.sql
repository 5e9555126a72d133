-- BEFORE UPDATE on outbound_actions: gives a change its place in the action's history and its time.
create or replace function outbox.number_change()
  returns trigger language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  if (old.execution_state, old.delivery_state, old.receipt_state)
     is distinct from (new.execution_state, new.delivery_state, new.receipt_state) then
    new.event_sequence := old.event_sequence + 1;
  end if;
  if new.event_sequence <> old.event_sequence then
    new.updated_at := greatest(outbox.now(), old.updated_at);
  end if;
  return new;
end $$;
