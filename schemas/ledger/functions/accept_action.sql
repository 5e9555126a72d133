-- BEFORE INSERT on outbound_actions: the door. Lets a new action in, skips a repeated one without an error, refuses
-- a known key with another intent and everything that could not be sent.
-- Errors: OB001 key used with another intent, OB002 facts set by hand, OB003 unknown provider, account or operation,
--         OB004 key, OB005 payload, OB006 recipient, OB007 deadline, OB012 a label.
create or replace function outbox.accept_action()
  returns trigger language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_provider outbox.providers;
  v_expected text[];
  v_fingerprint bytea;
  v_text text := new.payload::text;         -- once: it is as long as the agent made it
  v_sound boolean;                          -- only assigned: PERFORM would run a query for each call
begin
  if (new.execution_state, new.delivery_state, new.receipt_state, new.attempt_count, new.event_sequence)
     is distinct from ('action_created', 'delivery_pending', 'not_expected', 0, 1) or new.provider_id is not null then
    raise exception 'an action starts as action_created' using errcode = 'OB002',
      hint = 'Set the intent and the labels only.';
  end if;
  -- Not {1,255}: a counted repetition makes a state of every length, which costs as much as all the rest of the door.
  if new.idempotency_key is null or length(new.idempotency_key) > 255 or new.idempotency_key !~ '^[\x21-\x7e]+$' then
    raise exception 'idempotency_key must be 1 to 255 visible ASCII characters without spaces' using errcode = 'OB004',
      hint = 'A good key names what happens once: tenant:object:id:verb:occurrence.';
  end if;
  select * into v_provider from outbox.providers p
   where p.provider = new.provider and p.account = new.account and p.operation = new.operation and p.declared;
  if not found then
    perform outbox.refuse_unknown_operation(new.provider, new.account, new.operation);
  end if;
  v_sound := outbox.check_payload(new.payload, v_text, v_provider.payload_max_bytes);
  v_expected := outbox.expected_recipients(new.payload, v_provider.recipient_paths);
  if new.recipient is null then
    new.recipient := v_expected[1];
  elsif cardinality(v_expected) > 0 and new.recipient <> all (v_expected) then
    raise exception 'recipient is not what the payload says' using errcode = 'OB006',
      hint = 'Leave recipient out, and it is taken from the payload; or make both name the same.';
  end if;
  v_sound := outbox.check_labels(new);
  v_fingerprint := outbox.intent_fingerprint(new.provider, new.operation, new.account, new.recipient,
                                             new.content_version, v_text);
  insert into outbox.keys (idempotency_key, fingerprint, action_id)
    values (new.idempotency_key, v_fingerprint, new.action_id) on conflict do nothing;
  if not found then
    perform outbox.refuse_other_intent(new, v_fingerprint);
    return null;                              -- the same intent again: no second row, and no error
  end if;
  if not (coalesce(isfinite(new.not_before), true) and coalesce(isfinite(new.deliver_by), true)) then
    raise exception 'not_before and deliver_by must be finite' using errcode = 'OB007',
      hint = 'Leave out what has no limit.';
  end if;
  -- A repeat of a known action passes even late; only a new one must still have time.
  if new.deliver_by is not null and new.deliver_by <= outbox.now() then
    raise exception 'deliver_by is in the past' using errcode = 'OB007',
      hint = 'Give a later deliver_by, or none.';
  end if;
  if v_provider.receipts_expected then
    new.receipt_state := 'awaited';
  end if;
  new.last_event := 'inserted';
  new.last_actor := 'agent';
  new.created_by := session_user;
  return new;
end $$;
