-- The same for clients that send the payload as text or varchar (JDBC's setString, most drivers' default).
create or replace function outbox.enqueue(
    provider text, operation text, idempotency_key text, payload text, account text default 'default',
    recipient text default null, content_version text default null, ordering_key text default null,
    not_before timestamptz default null, deliver_by timestamptz default null, priority integer default 1,
    tenant text default null, traceparent text default null, follows_action_id uuid default null)
  returns table (action_id uuid, created boolean, execution_state text, delivery_state text, advice text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare v_payload jsonb;
begin
  begin
    v_payload := enqueue.payload::jsonb;
  exception
    when invalid_text_representation or untranslatable_character or numeric_value_out_of_range
        or statement_too_complex then
      raise exception 'payload is not JSON that can be sent: %', sqlerrm using errcode = 'OB005',
        hint = 'Send one JSON object without NUL characters or lone surrogates.';
  end;
  return query select * from outbox.enqueue(enqueue.provider, enqueue.operation, enqueue.idempotency_key, v_payload,
    enqueue.account, enqueue.recipient, enqueue.content_version, enqueue.ordering_key, enqueue.not_before,
    enqueue.deliver_by, enqueue.priority, enqueue.tenant, enqueue.traceparent, enqueue.follows_action_id);
end $$;
