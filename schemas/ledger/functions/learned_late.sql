-- How the acceptance that a worker reported after it had lost its claim was learned, as a resolution: the first unused
-- one, which is the one that the reconciler was shown (see unknown_case). A relay's is a response.
create or replace function outbox.learned_late(p_action_id uuid)
  returns text language sql stable set search_path = pg_catalog, outbox, pg_temp
as $$
  select case when first.kind in ('lookup', 'replay', 'receipt') then first.kind else 'response' end
    from (select (select e.kind from outbox.evidence e
                   where e.action_id = p_action_id and e.proves = 'acceptance' and e.used_at is null
                   order by e.evidence_id limit 1)) as first (kind)
$$;
