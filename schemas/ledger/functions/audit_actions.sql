-- Audit, the actions after p_after in order of id, p_limit of them, in the snapshot of the calling statement, so that a
-- ledger at work shows no false findings. last is where the next call goes on, null at the end.
-- findings: [{"finding", "subject" (the action), "detail"}]; never a payload, a recipient or a key.
create or replace function outbox.audit_actions(
    p_after uuid, p_limit integer, out looked integer, out last uuid, out findings jsonb)
  language plpgsql stable security definer set search_path = pg_catalog, outbox, pg_temp
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  v_after uuid := coalesce(p_after, '00000000-0000-0000-0000-000000000000');
  v_ids uuid[];
begin
  v_ids := array(select a.action_id from outbox.outbound_actions a
                  where a.action_id > v_after order by a.action_id limit p_limit);
  looked := cardinality(v_ids);
  last := case when looked = p_limit then v_ids[looked] end;
  select coalesce(jsonb_agg(jsonb_build_object('finding', f.finding, 'subject', f.action_id, 'detail', f.detail)
                            order by f.action_id, f.finding, f.detail), '[]')
    into findings
    from (select * from outbox.audit_facts(v_ids)
          union all
          select * from outbox.audit_history(v_after, coalesce(last, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))) f;
exception
  when invalid_text_representation or invalid_parameter_value or datatype_mismatch then
    findings := jsonb_build_array(jsonb_build_object('finding', 'event_unreadable', 'subject', v_after,
      'detail', format('an event of the %s actions after this one is no JSON object', looked)));
end $$;
