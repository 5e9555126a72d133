-- The operator queue, most urgent first.
create or replace function outbox.list_reviews(
    p_open_only boolean default true, p_owner text default null, p_review_id bigint default null,
    p_limit integer default 100)
  returns table (review_id bigint, action_id uuid, provider text, account text, operation text, idempotency_key text,
                 execution_state text, delivery_state text, reason text, owner text, missing text, next_step text,
                 opened_at timestamptz, due_at timestamptz, closed_at timestamptz, decision text, decided_by text)
  language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select r.review_id, a.action_id, a.provider, a.account, a.operation, a.idempotency_key, a.execution_state,
         a.delivery_state, r.reason, r.owner, r.missing, r.next_step, r.opened_at, r.due_at, r.closed_at, r.decision,
         r.decided_by
    from outbox.reviews r join outbox.outbound_actions a using (action_id)
   where (not p_open_only or r.closed_at is null) and (p_owner is null or r.owner = p_owner)
     and (p_review_id is null or r.review_id = p_review_id)
   order by r.closed_at nulls first, r.due_at, r.review_id limit least(p_limit, 10000)
$$;
