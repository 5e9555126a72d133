-- Audit, the row of each action against what stands beside it: its key and fingerprint, its queue row, an owner or a due
-- time for everything open, evidence that nobody used. One row per finding.
create or replace function outbox.audit_facts(p_ids uuid[])
  returns table (finding text, action_id uuid, detail text)
  language sql stable set search_path = pg_catalog, outbox, pg_temp
as $$
  select c.finding, a.action_id, c.detail
    from outbox.outbound_actions a
    left join outbox.keys k on k.idempotency_key = a.idempotency_key
    left join outbox.work_queue q on q.action_id = a.action_id
    left join outbox.reviews r on r.action_id = a.action_id and r.closed_at is null
   cross join lateral (
     select case when a.delivery_state = 'delivery_unknown' then 'unknown' when a.execution_state = 'on_hold' then 'hold'
                 when a.delivery_state = 'delivery_pending' then 'dispatch' end as kind,
            exists (select from outbox.evidence e
                     where e.action_id = a.action_id and e.proves = 'acceptance' and e.used_at is null) as unused) f
   cross join lateral (values
     (k.action_id is distinct from a.action_id, 'key_missing', 'no key protects this action'),
     (k.action_id = a.action_id and a.redacted_at is null and k.fingerprint <> outbox.intent_fingerprint(
        a.provider, a.operation, a.account, a.recipient, a.content_version, a.payload::text),
      'intent_changed', 'provider, operation, account, recipient, content or payload is not what was inserted'),
     (a.redacted_at is not null and f.kind is not null, 'redacted_open', 'redacted, and not settled'),
     (q.kind is distinct from f.kind, 'queue_differs',
      format('%s/%s, %s', a.execution_state, a.delivery_state, coalesce('queued as ' || q.kind, 'not queued'))),
     (a.execution_state = 'dispatch_started' and q.action_id is not null
        and (q.claim_token is null or q.claimed_until is null), 'no_claim', 'under way, and nobody holds its claim'),
     -- With evidence waiting it is the reconciler's, as after a cancel that came too late for it.
     (f.kind = 'hold' and r.owner is null and not q.evidence_waiting, 'no_owner', 'on hold, and no review is open'),
     (f.kind in ('dispatch', 'unknown') and q.due_at = 'infinity' and q.claimed_until is null and r.owner is null,
      'no_owner', format('%s, never due, and no review is open', f.kind)),
     (f.unused and (f.kind is null or not q.evidence_waiting), 'evidence_unused', 'an acceptance that nobody will use')
     ) as c (holds, finding, detail)
   where a.action_id = any (p_ids) and c.holds
$$;
