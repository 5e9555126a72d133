-- A worker that lost its claim, or a receipt, knows of an acceptance. It cannot change a state, but what it knows is
-- always kept: on an open action it waits for the reconciler, on a settled one it is weighed at once.
-- What a lookup, a replay or a receipt proved keeps that name: the resolution will say how it was learned.
create or replace function outbox.keep_late_acceptance(p_action_id uuid, p_evidence jsonb)
  returns void language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  update outbox.work_queue q set evidence_waiting = true where q.action_id = p_action_id;   -- the lock, first
  perform outbox.record_evidence(p_action_id, p_evidence || jsonb_build_object('proves', 'acceptance', 'kind',
    case when p_evidence ->> 'kind' in ('lookup', 'replay', 'receipt') then p_evidence ->> 'kind'
         else 'late_acceptance' end));
  perform outbox.weigh_evidence(p_action_id);
end $$;
