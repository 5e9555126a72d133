-- For agents' own tests, against nothing but PostgreSQL. Installed by outbox migrate --testing; refuses to work unless
-- the ledger's environment is test. Every step is one that a relay or a reconciler could take.
create schema if not exists outbox_testing;

create or replace function outbox_testing.settle(p_idempotency_key text, p_outcome text)
  returns text language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_id uuid;
  v_token uuid := gen_random_uuid();
  v_row outbox.outbound_actions;
  v_first text := case when p_outcome like 'unknown%' then 'response_lost' else p_outcome end;
begin
  if (select l.environment from outbox.ledger l) <> 'test' then
    raise exception 'outbox_testing works only in a ledger whose environment is test' using errcode = 'OB008';
  end if;
  if p_outcome not in ('accepted', 'refused', 'unknown', 'unknown_then_confirmed', 'unknown_then_failed', 'on_hold',
                       'cancelled', 'expired') then
    raise exception 'unknown outcome %', p_outcome using errcode = 'OB011',
      hint = 'One of accepted, refused, unknown, unknown_then_confirmed, unknown_then_failed, on_hold, cancelled, expired.';
  end if;
  select a.* into v_row from outbox.outbound_actions a where a.idempotency_key = p_idempotency_key;
  if not found then
    raise exception 'no action has this idempotency_key' using errcode = 'OB009';
  end if;
  v_id := v_row.action_id;
  perform from outbox.work_queue q where q.action_id = v_id for update;
  if p_outcome in ('cancelled', 'expired') then
    perform outbox.close_unsent(v_id, p_outcome, case p_outcome when 'cancelled' then 'cancelled' else 'deadline_passed' end,
      case p_outcome when 'cancelled' then 'agent' else 'reconciler' end, 'settled_by_test');
    return p_outcome;
  end if;
  if v_row.delivery_state = 'delivery_pending' then
    perform outbox.claim_batch(array[v_id], v_token, 60000, 1000, 'outbox_testing', outbox.now());
    perform outbox.record_outcomes(jsonb_build_array(jsonb_build_object(
      'action_id', v_id, 'claim_token', v_token, 'reason', 'settled_by_test',
      'event', case p_outcome when 'on_hold' then 'held' else v_first end,
      'provider_id', case p_outcome when 'accepted' then 'test-' || v_id end)));
  end if;
  if p_outcome in ('unknown_then_confirmed', 'unknown_then_failed') then
    update outbox.work_queue q set claim_token = v_token, claimed_until = outbox.now() + interval '1 minute'
     where q.action_id = v_id;
    perform outbox.record_resolutions(jsonb_build_array(jsonb_build_object(
      'action_id', v_id, 'claim_token', v_token, 'reason', 'settled_by_test', 'resend', false,
      'event', case p_outcome when 'unknown_then_confirmed' then 'found' else 'proven_absent' end,
      'provider_id', case p_outcome when 'unknown_then_confirmed' then 'test-' || v_id end)));
  end if;
  return (select a.delivery_state from outbox.outbound_actions a where a.action_id = v_id);
end $$;

revoke all on schema outbox_testing from public;
revoke all on all functions in schema outbox_testing from public;
grant usage on schema outbox_testing to {agent};
grant execute on function outbox_testing.settle(text, text) to {agent};
