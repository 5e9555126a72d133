-- The type of the record that announces a change on the status topic: the notice, the receipt, or the state reached.
create or replace function outbox.record_type(p_event text, p_execution text, p_delivery text, p_receipt text)
  returns text language sql immutable
as $$
  select 'outbox-relay.delivery-status.' || case
    when p_event in ('review_opened', 'replay_started', 'cancel_requested', 'duplicate_suspected') then p_event
    when p_event in ('receipt_delivered', 'receipt_undelivered') then p_receipt
    when p_execution = 'dispatch_finished' then p_delivery
    else p_execution
  end || '.v1'
$$;
