-- Withdraws an own action. Wins or loses against a claim, and says which:
--   cancelled         nothing was or will be sent
--   cancel_requested  an attempt is under way or its outcome is unknown; from here on it is only looked up
--   settled           too late: see the states returned
-- Errors: OB009 no such action of this role.
create or replace function outbox.cancel(p_idempotency_key text)
  returns table (action_id uuid, outcome text, execution_state text, delivery_state text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare v_id uuid;
begin
  select a.action_id into v_id from outbox.outbound_actions a
   where a.idempotency_key = p_idempotency_key and a.created_by = session_user;
  if not found then
    raise exception 'no action with this idempotency_key was created by %', session_user using errcode = 'OB009';
  end if;
  action_id := v_id;
  outcome := outbox.cancel_action(v_id, 'agent', 'cancelled_by_agent');
  select a.execution_state, a.delivery_state into execution_state, delivery_state
    from outbox.outbound_actions a where a.action_id = v_id;
  return next;
end $$;
