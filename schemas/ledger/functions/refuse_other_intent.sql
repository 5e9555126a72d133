-- The key is known. Returns when the intent is the same; otherwise names the existing action, what to do about it, and
-- which parts differ (to its own creator only). Errors: OB001.
create or replace function outbox.refuse_other_intent(p_new outbox.outbound_actions, p_fingerprint bytea)
  returns void language plpgsql stable set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_key outbox.keys;
  v_old outbox.outbound_actions;
  v_differs text;
begin
  select * into v_key from outbox.keys k where k.idempotency_key = p_new.idempotency_key;
  if v_key.fingerprint = p_fingerprint then
    return;
  end if;
  select * into v_old from outbox.outbound_actions a where a.action_id = v_key.action_id;
  if not found or v_old.created_by <> session_user then
    raise exception 'this idempotency_key is in use with another intent' using errcode = 'OB001',
      hint = 'Choose a key that names this action alone.';
  end if;
  v_differs := concat_ws(', ',
    case when v_old.provider <> p_new.provider then 'provider' end,
    case when v_old.operation <> p_new.operation then 'operation' end,
    case when v_old.account <> p_new.account then 'account' end,
    case when v_old.redacted_at is null and v_old.recipient is distinct from p_new.recipient then 'recipient' end,
    case when v_old.content_version is distinct from p_new.content_version then 'content_version' end,
    case when v_old.redacted_at is null and v_old.payload <> p_new.payload then 'payload' end);
  raise exception 'this idempotency_key is in use with another intent' using errcode = 'OB001',
    detail = json_build_object(
      'action_id', v_old.action_id, 'execution_state', v_old.execution_state,
      'delivery_state', v_old.delivery_state,
      'advice', outbox.advice(v_old.execution_state, v_old.delivery_state,
                              exists (select from outbox.reviews r where r.action_id = v_old.action_id
                                        and r.closed_at is null)),
      'differs', coalesce(nullif(v_differs, ''),
                          case when v_old.redacted_at is null then 'payload' else 'recipient or payload' end))::text,
    hint = 'Repeat the first intent to get the existing action. If another effect is wanted, use a new key and set '
           'follows_action_id to this action.';
end $$;
