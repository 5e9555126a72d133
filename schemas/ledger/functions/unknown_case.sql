-- Everything that a decision about an unknown may use, as one JSON object. The payload is a JSON string inside it, so
-- that its text arrives byte for byte.
create or replace function outbox.unknown_case(p_action_id uuid, p_token uuid, p_now timestamptz)
  returns jsonb language sql stable set search_path = pg_catalog, outbox, pg_temp
as $$
  select jsonb_build_object(
    'claim', to_jsonb(outbox.as_claim(a, p_token, p.mode, q.due_at, p_now)),
    'execution_state', a.execution_state, 'delivery_state', a.delivery_state, 'now', p_now,
    'first_attempt_at', coalesce(a.first_attempt_at, a.created_at),
    'last_attempt_at', coalesce(a.last_attempt_at, a.created_at),
    'in_flight_until', coalesce(a.in_flight_until, p_now), 'unknown_since', coalesce(a.unknown_since, p_now),
    'deliver_by', a.deliver_by, 'cancel_requested', a.cancel_requested_at is not null,
    'review_open', exists (select from outbox.reviews r where r.action_id = a.action_id and r.closed_at is null),
    'lookups', q.lookups, 'replays', q.replays, 'resends', a.resend_count,
    'evidence', coalesce((select jsonb_agg(outbox.as_evidence(e) order by e.evidence_id)
                            from outbox.evidence e where e.action_id = a.action_id), '[]'),
    'unused_acceptance', (select outbox.as_evidence(e) from outbox.evidence e
                           where e.action_id = a.action_id and e.proves = 'acceptance' and e.used_at is null
                           order by e.evidence_id limit 1))
    from outbox.outbound_actions a
    join outbox.work_queue q using (action_id)
    join outbox.providers p on p.provider = a.provider and p.account = a.account and p.operation = a.operation
   where a.action_id = p_action_id
$$;
