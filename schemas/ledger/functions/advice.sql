-- What an agent should do about an action, in machine form.
create or replace function outbox.advice(p_execution text, p_delivery text, p_in_review boolean)
  returns text language sql immutable
as $$
  select case
    when p_delivery in ('delivery_confirmed', 'reconciled_confirmed') then 'accepted'
    when p_delivery = 'delivery_rejected' then 'refused'
    when p_delivery in ('not_sent', 'reconciled_failed') then 'not_sent'
    when p_delivery = 'abandoned' then 'closed_unproven_do_not_resend'
    when p_in_review or p_execution = 'on_hold' then 'in_review'
    when p_delivery = 'delivery_unknown' then 'unknown_do_not_resend'
    else 'wait'
  end
$$;
