-- BEFORE UPDATE on outbound_actions: the second fence. Refuses every change that is not a listed step, whoever tries,
-- and appends the event, so that table, history and topic cannot disagree. Errors: OB002.
create or replace function outbox.guard_action()
  returns trigger language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_moved boolean := (old.execution_state, old.delivery_state) is distinct from (new.execution_state, new.delivery_state);
  v_receipt boolean := old.receipt_state is distinct from new.receipt_state;
  v_notice boolean := not v_moved and not v_receipt and new.event_sequence = old.event_sequence + 1
    and new.last_event in ('review_opened', 'replay_started', 'cancel_requested', 'duplicate_suspected');
  v_time text;
begin
  if (new.action_id, new.provider, new.operation, new.account, new.idempotency_key, new.recipient, new.content_version,
      new.ordering_key, new.not_before, new.deliver_by, new.tenant, new.traceparent, new.follows_action_id,
      new.created_by, new.created_at)
     is distinct from
     (old.action_id, old.provider, old.operation, old.account, old.idempotency_key, old.recipient, old.content_version,
      old.ordering_key, old.not_before, old.deliver_by, old.tenant, old.traceparent, old.follows_action_id,
      old.created_by, old.created_at)
     -- Redacting is the one change, of what is settled, and it leaves nothing that could be sent.
     or (new.payload is distinct from old.payload and (new.payload <> '{}' or new.redacted_at is null
       or new.delivery_state in ('delivery_pending', 'delivery_unknown')))
     or (old.wire_key is not null and (new.wire_key, new.contract_version, new.base_url, new.account_identity)
         is distinct from (old.wire_key, old.contract_version, old.base_url, old.account_identity)) then
    raise exception 'the intent of action % and what its first claim fixed cannot change', old.action_id
      using errcode = 'OB002';
  end if;
  if v_moved and not exists (
      select from outbox.transitions t
       where t.from_execution = old.execution_state and t.from_delivery = old.delivery_state
         and t.event = new.last_event and t.actor = new.last_actor
         and t.to_execution = new.execution_state and t.to_delivery = new.delivery_state) then
    raise exception 'action %: % by % does not lead from %/% to %/%', old.action_id, new.last_event, new.last_actor,
      old.execution_state, old.delivery_state, new.execution_state, new.delivery_state using errcode = 'OB002';
  end if;
  if v_receipt and (v_moved or not exists (
      select from outbox.receipt_transitions t
       where t.from_receipt = old.receipt_state and t.to_receipt = new.receipt_state
         and t.event = new.last_event and t.actor = new.last_actor)) then
    raise exception 'action %: receipt % by % does not lead from % to %', old.action_id, new.last_event, new.last_actor,
      old.receipt_state, new.receipt_state using errcode = 'OB002';
  end if;
  if not v_moved and ((new.provider_id, new.resolution) is distinct from (old.provider_id, old.resolution)
      or new.attempt_count <> old.attempt_count
         + case when v_notice and new.last_event = 'replay_started' then 1 else 0 end
      or new.event_sequence <> old.event_sequence + case when v_notice then 1 else 0 end) then
    raise exception 'action %: facts change only with a listed step', old.action_id using errcode = 'OB002';
  end if;
  if not (v_moved or v_receipt or v_notice) then
    return new;
  end if;
  new.event_sequence := old.event_sequence + 1;
  new.updated_at := greatest(outbox.now(), old.updated_at);
  v_time := outbox.rfc3339(new.updated_at);
  insert into outbox.action_events (action_id, sequence, event_id, type, source, time, subject, traceparent, data,
                                    created_by, occurred_at)
    select new.action_id, new.event_sequence, new.action_id || '.' || new.event_sequence,
           'outbox-relay.delivery-status.'
             || outbox.record_type(new.last_event, new.execution_state, new.delivery_state, new.receipt_state) || '.v1',
           '/outbox-relay/' || l.ledger_id, v_time, new.action_id, new.traceparent,
           outbox.event_data(new, new.last_event, old.execution_state, old.delivery_state, v_time,
             encode(sha256(l.key_hash_secret || convert_to(new.idempotency_key, 'UTF8')), 'hex')),
           new.created_by, new.updated_at
      from outbox.ledger l;
  return new;
end $$;
