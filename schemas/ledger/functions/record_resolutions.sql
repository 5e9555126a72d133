-- What the reconciler concluded, a batch at a time, each under its claim. Never raises for one conclusion.
-- p_resolutions: [{"action_id", "claim_token", "event", "reason", "resend", "provider_id", "evidence"}].
-- Lock order: the queue rows of the whole batch in order of action_id, then the ledger: a settled action has no queue
-- row, so one by one its ledger row would be held while the next queue row is waited for.
create or replace function outbox.record_resolutions(p_resolutions jsonb)
  returns table (action_id uuid, verdict text, execution_state text, delivery_state text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare
  v_item record;
  v_queue outbox.work_queue;
begin
  perform outbox.lock_queue(p_resolutions);
  for v_item in
    select r.* from jsonb_to_recordset(p_resolutions) as r (
        action_id uuid, claim_token uuid, event text, reason text, resend boolean, provider_id text, evidence jsonb)
     order by r.action_id loop
    select q.* into v_queue from outbox.work_queue q
     where q.action_id = v_item.action_id and q.claim_token = v_item.claim_token;
    if found then
      verdict := outbox.record_resolution(v_queue, v_item.event, v_item.reason, coalesce(v_item.resend, false),
                                          v_item.provider_id, v_item.evidence);
    else
      verdict := 'stale';
      if v_item.event in ('found', 'replay_accepted', 'receipt_arrived') then
        perform outbox.keep_late_acceptance(v_item.action_id,
          coalesce(v_item.evidence, '{"reason": "accepted"}') || jsonb_build_object('provider_id', v_item.provider_id));
      elsif v_item.evidence is not null then
        perform outbox.record_evidence(v_item.action_id, v_item.evidence);
      end if;
    end if;
    action_id := v_item.action_id;
    select a.execution_state, a.delivery_state into execution_state, delivery_state
      from outbox.outbound_actions a where a.action_id = v_item.action_id;
    return next;
  end loop;
end $$;
