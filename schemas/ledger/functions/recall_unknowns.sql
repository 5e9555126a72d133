-- What did the reconciler get under this token? For a COMMIT whose acknowledgement was lost.
create or replace function outbox.recall_unknowns(p_token uuid)
  returns setof jsonb language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_token::text, 0));
  return query
    select outbox.unknown_case(q.action_id, p_token, outbox.now()) from outbox.work_queue q
     where q.claim_token = p_token and q.claimed_until > outbox.now() order by q.action_id;
end $$;
