-- AFTER INSERT on outbound_actions, once per statement: the queue rows, the first events and the count of what was let
-- in. Set-based, so that a hundred thousand rows in one statement stay linear.
create or replace function outbox.register_actions()
  returns trigger language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  insert into outbox.work_queue (action_id, kind, provider, account, ordering_key, blocks, priority, due_at, deliver_by)
    select i.action_id, 'dispatch', i.provider, i.account, i.ordering_key, not p.unordered_after_unknown, i.priority,
           coalesce(i.not_before, i.created_at), i.deliver_by
      from inserted i join outbox.providers p using (provider, account, operation)
     order by i.created_at, i.action_id;
  insert into outbox.action_events (action_id, sequence, event_id, type, source, time, subject, traceparent, data,
                                    created_by, occurred_at)
    select i.action_id, 1, i.action_id || '.1', 'outbox-relay.delivery-status.action_created.v1',
           '/outbox-relay/' || l.ledger_id, outbox.rfc3339(i.created_at), i.action_id, i.traceparent,
           outbox.event_data(i.action_id, i.provider, i.account, i.operation, 'inserted', i.execution_state,
             i.delivery_state, i.receipt_state, null, null, 0, null, null, null, l.key_hash_secret, i.idempotency_key,
             i.created_at),
           i.created_by, i.created_at
      from inserted i cross join outbox.ledger l;
  insert into outbox.counter_deltas (provider, account, name, amount)
    select i.provider, i.account, 'created', count(*) from inserted i group by i.provider, i.account;
  return null;
end $$;
