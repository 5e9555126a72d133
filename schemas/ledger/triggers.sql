-- Which functions stand at which door. Re-applied when this file changes.
create or replace trigger accept_action before insert on outbox.outbound_actions
  for each row execute function outbox.accept_action();
create or replace trigger register_actions after insert on outbox.outbound_actions
  referencing new table as inserted for each statement execute function outbox.register_actions();
create or replace trigger guard_actions after update on outbox.outbound_actions
  referencing old table as old_rows new table as new_rows
  for each statement execute function outbox.guard_actions();
create or replace trigger keep_actions before delete or truncate on outbox.outbound_actions
  for each statement execute function outbox.refuse_change();
create or replace trigger keep_keys before update or delete or truncate on outbox.keys
  for each statement execute function outbox.refuse_change();
create or replace trigger keep_events before update or truncate on outbox.action_events
  for each statement execute function outbox.refuse_change();
create or replace trigger guard_history before delete on outbox.action_events
  for each row execute function outbox.guard_history();
create or replace trigger keep_evidence before truncate on outbox.evidence
  for each statement execute function outbox.refuse_change();
create or replace trigger guard_evidence before update or delete on outbox.evidence
  for each row execute function outbox.guard_evidence();
