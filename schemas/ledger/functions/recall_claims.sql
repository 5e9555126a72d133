-- What did we get under this token? For a relay whose COMMIT acknowledgement was lost: it waits for the lost
-- transaction to end, then returns the claims that are really ours.
create or replace function outbox.recall_claims(p_token uuid)
  returns setof outbox.claimed_action language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_token::text, 0));
  return query
    select (outbox.as_claim(a, p_token, p.mode, q.due_at, outbox.now())).*
      from outbox.work_queue q
      join outbox.outbound_actions a using (action_id)
      join outbox.providers p on p.provider = a.provider and p.account = a.account and p.operation = a.operation
     where q.claim_token = p_token and q.claimed_until > outbox.now() and a.execution_state = 'dispatch_started'
     order by q.action_id;
end $$;
