-- Inserts an action and returns it, or returns the existing one when the same intent is there already.
-- Everything a plain INSERT refuses is refused here, with the same errors.
create or replace function outbox.enqueue(
    provider text, operation text, idempotency_key text, payload jsonb, account text default 'default',
    recipient text default null, content_version text default null, ordering_key text default null,
    not_before timestamptz default null, deliver_by timestamptz default null, priority integer default 1,
    tenant text default null, traceparent text default null, follows_action_id uuid default null)
  returns table (action_id uuid, created boolean, execution_state text, delivery_state text, advice text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare v_id uuid;
begin
  insert into outbox.outbound_actions (provider, operation, account, idempotency_key, recipient, content_version,
      payload, ordering_key, not_before, deliver_by, priority, tenant, traceparent, follows_action_id)
    values (enqueue.provider, enqueue.operation, enqueue.account, enqueue.idempotency_key, enqueue.recipient,
      enqueue.content_version, enqueue.payload, enqueue.ordering_key, enqueue.not_before, enqueue.deliver_by,
      enqueue.priority, enqueue.tenant, enqueue.traceparent, enqueue.follows_action_id)
    returning outbound_actions.action_id into v_id;
  created := v_id is not null;
  if not created then
    select k.action_id into v_id from outbox.keys k where k.idempotency_key = enqueue.idempotency_key;
  end if;
  action_id := v_id;
  select a.execution_state, a.delivery_state,
         outbox.advice(a.execution_state, a.delivery_state,
           exists (select from outbox.reviews r where r.action_id = a.action_id and r.closed_at is null))
    into execution_state, delivery_state, advice
    from outbox.outbound_actions a where a.action_id = v_id;
  return next;
end $$;
