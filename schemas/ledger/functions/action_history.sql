-- Every change of one action and every piece of evidence, oldest first.
create or replace function outbox.action_history(p_action_id uuid, out events jsonb, out evidence jsonb)
  language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select coalesce((select jsonb_agg(e.data::jsonb || jsonb_build_object('sequence', e.sequence, 'type', e.type)
                                    order by e.sequence)
                     from outbox.action_events e where e.action_id = p_action_id), '[]'),
         coalesce((select jsonb_agg(outbox.as_evidence(v) order by v.evidence_id)
                     from outbox.evidence v where v.action_id = p_action_id), '[]')
$$;
