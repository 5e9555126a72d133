-- AFTER UPDATE on outbound_actions, once per statement: the second fence. Refuses every change that is not a listed
-- step, whoever tries, and appends the events, so that table, history and topic cannot disagree. Set-based, because a
-- batch of claims or outcomes is one statement; columns by name, because a whole row of a transition table is dear.
-- By hash, whatever its caller set and however few rows the session's first batch had: a plan is kept, and a nested loop
-- over two transition tables is quadratic in the batch. Errors: OB002.
create or replace function outbox.guard_actions()
  returns trigger language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
  set enable_hashjoin = on set enable_nestloop = off
as $$
declare
  v_why text;
  v_now timestamptz := outbox.now();
begin
  select c.why into v_why from (
    select case
        when o.action_id is null then 'the id of an action cannot change'
        when (n.provider, n.operation, n.account, n.idempotency_key, n.content_version, n.ordering_key, n.not_before,
              n.deliver_by, n.priority, n.tenant, n.traceparent, n.follows_action_id, n.created_by, n.created_at)
             is distinct from
             (o.provider, o.operation, o.account, o.idempotency_key, o.content_version, o.ordering_key, o.not_before,
              o.deliver_by, o.priority, o.tenant, o.traceparent, o.follows_action_id, o.created_by, o.created_at)
             -- Redacting is the one change, of what is settled, and it leaves nothing that could be sent.
             or (n.payload <> o.payload and (n.payload <> '{}' or n.redacted_at is null
                 or n.delivery_state in ('delivery_pending', 'delivery_unknown')))
             or (n.recipient is distinct from o.recipient and (n.recipient is not null or n.redacted_at is null
                 or n.delivery_state in ('delivery_pending', 'delivery_unknown')))
             or (n.redacted_at, n.history_deleted_at) is distinct from (o.redacted_at, o.history_deleted_at)
                and (o.redacted_at is not null and n.redacted_at is distinct from o.redacted_at
                     or o.history_deleted_at is not null or n.redacted_at is null
                     or n.delivery_state in ('delivery_pending', 'delivery_unknown'))
             or (o.wire_key is not null and (n.wire_key, n.contract_version, n.base_url, n.account_identity)
                 is distinct from (o.wire_key, o.contract_version, o.base_url, o.account_identity))
          then format('the intent of action %s and what its first claim fixed cannot change', o.action_id)
        when (n.execution_state, n.delivery_state) is distinct from (o.execution_state, o.delivery_state)
             and (n.receipt_state is distinct from o.receipt_state or n.event_sequence <> o.event_sequence + 1
                  or not exists (
                    select from outbox.transitions t
                     where t.from_execution = o.execution_state and t.from_delivery = o.delivery_state
                       and t.event = n.last_event and t.actor = n.last_actor
                       and t.to_execution = n.execution_state and t.to_delivery = n.delivery_state))
          then format('action %s: %s by %s does not lead from %s/%s to %s/%s', o.action_id, n.last_event, n.last_actor,
                      o.execution_state, o.delivery_state, n.execution_state, n.delivery_state)
        when n.receipt_state is distinct from o.receipt_state and not exists (
               select from outbox.receipt_transitions t
                where t.from_receipt = o.receipt_state and t.to_receipt = n.receipt_state
                  and t.event = n.last_event and t.actor = n.last_actor)
          then format('action %s: receipt %s by %s does not lead from %s to %s', o.action_id, n.last_event,
                      n.last_actor, o.receipt_state, n.receipt_state)
        when (n.execution_state, n.delivery_state) is not distinct from (o.execution_state, o.delivery_state)
             and ((n.provider_id, n.resolution) is distinct from (o.provider_id, o.resolution)
                  or n.attempt_count <> o.attempt_count
                     + case when n.last_event = 'replay_started' then n.event_sequence - o.event_sequence else 0 end
                  or n.event_sequence <> o.event_sequence + case
                       when n.receipt_state is distinct from o.receipt_state then 1
                       when n.event_sequence <> o.event_sequence and n.last_event in (
                         'review_opened', 'replay_started', 'cancel_requested', 'duplicate_suspected') then 1
                       else 0 end)
          then format('action %s: facts change only with a listed step', o.action_id)
        -- Never backwards, though the clock may jump; not far ahead, or every later event would have that time too; and
        -- not forgotten. A second is what may pass between the update and this look at a clock that was set back.
        when n.updated_at <> o.updated_at and (n.event_sequence = o.event_sequence or n.updated_at < o.updated_at
                                               or n.updated_at > v_now + interval '1 minute')
             or n.updated_at = o.updated_at and n.event_sequence <> o.event_sequence
                and o.updated_at < v_now - interval '1 second'
          then format('action %s: updated_at is the time of its last event', o.action_id)
      end as why
      from new_rows n left join old_rows o using (action_id)) c
   where c.why is not null limit 1;
  if found then
    raise exception '%', v_why using errcode = 'OB002';
  end if;
  insert into outbox.action_events (action_id, sequence, event_id, type, source, time, subject, traceparent, data,
                                    created_by, occurred_at)
    select n.action_id, n.event_sequence, n.action_id || '.' || n.event_sequence,
           outbox.record_type(n.last_event, n.execution_state, n.delivery_state, n.receipt_state),
           '/outbox-relay/' || l.ledger_id, outbox.rfc3339(n.updated_at), n.action_id, n.traceparent,
           outbox.event_data(n.action_id, n.provider, n.account, n.operation, n.last_event, n.execution_state,
             n.delivery_state, n.receipt_state, o.execution_state, o.delivery_state, n.attempt_count, n.last_reason,
             n.provider_id, n.resolution, l.key_hash_secret, n.idempotency_key, n.updated_at),
           n.created_by, n.updated_at
      from new_rows n join old_rows o using (action_id) cross join outbox.ledger l
     where n.event_sequence > o.event_sequence;
  -- Opt-in, by a setting of the session that writes outcomes: a hint without content. Never at INSERT: ADR 10.
  if found and current_setting('outbox.notify', true) = 'on' then
    perform pg_notify('outbox_changes', '');
  end if;
  return null;
end $$;
