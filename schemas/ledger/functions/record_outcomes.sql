-- What the attempts of a relay proved, a batch at a time. Never raises for one outcome: a claim that is no longer ours
-- gives 'stale', and an acceptance that came too late is kept.
-- p_outcomes: [{"action_id", "claim_token", "event", "reason", "provider_id", "retry_in_ms", "message", "evidence"}].
-- Lock order: the queue rows of the whole batch in order of action_id, then the ledger.
create or replace function outbox.record_outcomes(p_outcomes jsonb)
  returns table (action_id uuid, verdict text, execution_state text, delivery_state text)
  language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
#variable_conflict use_column
declare
  v_item record;
  v_queue outbox.work_queue;
  v_ids uuid[];
  v_tokens uuid[];
begin
  perform outbox.lock_queue(p_outcomes);
  select array_agg(d.action_id order by d.action_id), array_agg(d.claim_token order by d.action_id)
    into v_ids, v_tokens from outbox.record_accepted(p_outcomes) d;
  if cardinality(v_ids) = jsonb_array_length(p_outcomes) then   -- the common case: nothing else to look at
    return query select d, 'applied', 'dispatch_finished', 'delivery_confirmed' from unnest(v_ids) d;
    return;
  end if;
  for v_item in
    select o.*, (o.action_id, o.claim_token) in (select unnest(v_ids), unnest(v_tokens)) as is_done
      from jsonb_to_recordset(p_outcomes) as o (
        action_id uuid, claim_token uuid, event text, reason text, provider_id text, retry_in_ms bigint, message text,
        evidence jsonb)
     order by o.action_id loop
    action_id := v_item.action_id;
    if v_item.is_done then
      verdict := 'applied';
      execution_state := 'dispatch_finished';
      delivery_state := 'delivery_confirmed';
      return next;
      continue;
    end if;
    select q.* into v_queue from outbox.work_queue q
     where q.action_id = v_item.action_id and q.claim_token = v_item.claim_token and q.kind = 'dispatch';
    if found then
      verdict := outbox.record_outcome(v_queue, v_item.event, v_item.reason, v_item.provider_id, v_item.retry_in_ms,
                                       v_item.message, v_item.evidence);
    else
      verdict := 'stale';
      if v_item.event = 'accepted' then
        perform outbox.keep_late_acceptance(v_item.action_id,
          coalesce(v_item.evidence, '{"reason": "accepted"}') || jsonb_build_object('provider_id', v_item.provider_id));
      elsif v_item.evidence is not null then
        perform outbox.record_evidence(v_item.action_id, v_item.evidence);
      end if;
    end if;
    select a.execution_state, a.delivery_state into execution_state, delivery_state
      from outbox.outbound_actions a where a.action_id = v_item.action_id;
    return next;
  end loop;
end $$;
