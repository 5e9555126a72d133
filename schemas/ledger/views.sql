-- What may be read. Re-applied when this file changes.
create or replace view outbox.action_summary as
  select a.action_id, a.idempotency_key, a.provider, a.account, a.operation, a.execution_state, a.delivery_state,
         a.receipt_state, a.attempt_count, a.provider_id, a.resolution, a.last_error,
         outbox.advice(a.execution_state, a.delivery_state, r.review_id is not null) as advice,
         case when r.review_id is not null then r.due_at
              when q.action_id is null then null
              else greatest(nullif(q.due_at, 'infinity'), q.claimed_until, clock_timestamp() + interval '1 second')
         end as check_again_at,
         a.duplicate_suspected, a.created_at, a.updated_at, a.created_by, a.tenant, a.follows_action_id
    from outbox.outbound_actions a
    left join outbox.work_queue q using (action_id)
    left join outbox.reviews r on r.action_id = a.action_id and r.closed_at is null;

-- An agent's own actions: the three facts, and what to do about them.
create or replace view outbox.action_status with (security_barrier) as
  select s.* from outbox.action_summary s where s.created_by = session_user;
