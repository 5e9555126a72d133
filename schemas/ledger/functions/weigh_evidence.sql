-- Unused acceptances of a settled action: the same acceptance is used up, any other contradicts it. An open action is
-- left to the reconciler, one that this ledger does not have (it was rewound) to whoever finds it again. The caller holds the queue row, if there is one.
create or replace function outbox.weigh_evidence(p_action_id uuid)
  returns void language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_action outbox.outbound_actions;
  v_contradicts boolean;
begin
  select * into v_action from outbox.outbound_actions a where a.action_id = p_action_id for update;
  if not found or v_action.delivery_state in ('delivery_pending', 'delivery_unknown') then
    return;
  end if;
  select bool_or(v_action.delivery_state not in ('delivery_confirmed', 'reconciled_confirmed')
                 or (e.provider_id is not null and v_action.provider_id is not null
                     and e.provider_id <> v_action.provider_id))
    into v_contradicts
    from outbox.evidence e
   where e.action_id = p_action_id and e.proves = 'acceptance' and e.used_at is null;
  update outbox.evidence e set used_at = outbox.now()
   where e.action_id = p_action_id and e.proves = 'acceptance' and e.used_at is null;
  if v_contradicts then
    update outbox.outbound_actions a
       set event_sequence = a.event_sequence + 1, updated_at = greatest(outbox.now(), a.updated_at),
           duplicate_suspected = true, last_event = 'duplicate_suspected', last_actor = 'reconciler',
           last_reason = 'late_acceptance_contradicts'
     where a.action_id = p_action_id;
    perform outbox.open_review(p_action_id, 'duplicate_suspected', null,
      'Whether the provider acted twice, or after this action was closed.',
      'Compare the provider''s records for this key with the evidence; undo one effect if there are two.', 3600000);
  end if;
end $$;
