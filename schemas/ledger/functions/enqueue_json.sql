-- The same for clients that send the payload as json (psycopg's Json, JDBC's PGobject): its text decides.
create or replace function outbox.enqueue(
    provider text, operation text, idempotency_key text, payload json, account text default 'default',
    recipient text default null, content_version text default null, ordering_key text default null,
    not_before timestamptz default null, deliver_by timestamptz default null, priority integer default 1,
    tenant text default null, traceparent text default null, follows_action_id uuid default null)
  returns table (action_id uuid, created boolean, execution_state text, delivery_state text, advice text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  return query select * from outbox.enqueue(enqueue.provider, enqueue.operation, enqueue.idempotency_key,
    enqueue.payload::text, enqueue.account, enqueue.recipient, enqueue.content_version, enqueue.ordering_key,
    enqueue.not_before, enqueue.deliver_by, enqueue.priority, enqueue.tenant, enqueue.traceparent,
    enqueue.follows_action_id);
end $$;
