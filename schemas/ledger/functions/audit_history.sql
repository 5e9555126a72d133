-- Audit, the retained events of the actions between two ids, replayed: an unbroken sequence (from 1, unless retention
-- deleted the beginning), each event beginning where the one before ended, every step listed, the last one as the row says;
-- and no event without its action. One row per finding.
create or replace function outbox.audit_history(p_after uuid, p_until uuid)
  returns table (finding text, action_id uuid, detail text)
  language sql stable set search_path = pg_catalog, outbox, pg_temp
as $$
  with steps as materialized (
    select e.action_id, e.sequence, d.*,
           lag(e.sequence) over w as sequence_before, lag(d.execution_state) over w as execution_before,
           lag(d.delivery_state) over w as delivery_before, lead(e.sequence) over w is null as is_last
      from outbox.action_events e
     cross join lateral jsonb_to_record(e.data::jsonb) as d (
       event text, execution_state text, delivery_state text, receipt_state text, previous_execution_state text,
       previous_delivery_state text, attempt integer, provider_id text, resolution text)
     where e.action_id > p_after and e.action_id <= p_until
    window w as (partition by e.action_id order by e.sequence)
  ), actions as (
    select a.* from outbox.outbound_actions a where a.action_id > p_after and a.action_id <= p_until
  )
  select c.finding, s.action_id, c.detail
    from steps s left join actions a using (action_id)
   cross join lateral (values
     (a.action_id is null and s.is_last, 'event_without_action', format('event %s', s.sequence)),
     (s.sequence_before is null and s.sequence > 1 and a.history_deleted_at is null, 'history_gap',
      format('events before %s are missing', s.sequence)),
     (s.sequence > s.sequence_before + 1, 'history_gap',
      format('events between %s and %s are missing', s.sequence_before, s.sequence)),
     (s.sequence = 1 and (s.event, s.execution_state, s.delivery_state)
        is distinct from ('inserted', 'action_created', 'delivery_pending'),
      'history_broken', 'it does not begin with its creation'),
     (s.sequence = s.sequence_before + 1 and (s.previous_execution_state, s.previous_delivery_state)
        is distinct from (s.execution_before, s.delivery_before), 'history_broken',
      format('event %s begins at %s/%s, event %s ended at %s/%s', s.sequence, s.previous_execution_state,
             s.previous_delivery_state, s.sequence_before, s.execution_before, s.delivery_before)),
     (s.sequence > 1 and (s.previous_execution_state, s.previous_delivery_state)
        is distinct from (s.execution_state, s.delivery_state) and not exists (
        select from outbox.transitions t
         where t.from_execution = s.previous_execution_state and t.from_delivery = s.previous_delivery_state
           and t.event = s.event and t.to_execution = s.execution_state and t.to_delivery = s.delivery_state),
      'step_not_listed', format('event %s: %s from %s/%s to %s/%s', s.sequence, s.event, s.previous_execution_state,
                                s.previous_delivery_state, s.execution_state, s.delivery_state)),
     (s.is_last and s.sequence <> a.event_sequence, 'history_gap',
      format('the last event is %s, the row is at %s', s.sequence, a.event_sequence)),
     (s.is_last and s.sequence = a.event_sequence and
      (s.execution_state, s.delivery_state, s.receipt_state, s.attempt, s.provider_id, s.resolution) is distinct from
      (a.execution_state, a.delivery_state, a.receipt_state, a.attempt_count, a.provider_id, a.resolution),
      'row_differs', format('the row says %s/%s, its history %s/%s', a.execution_state, a.delivery_state,
                            s.execution_state, s.delivery_state))
     ) as c (holds, finding, detail)
   where c.holds
  union all
  select 'history_gap', a.action_id, 'no event is left, and retention deleted none'
    from actions a
   where a.history_deleted_at is null and not exists (select from steps s where s.action_id = a.action_id)
$$;
