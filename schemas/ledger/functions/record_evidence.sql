-- Keeps one piece of evidence, as it came. p_evidence has the fields of the Python value of the same name.
create or replace function outbox.record_evidence(p_action_id uuid, p_evidence jsonb)
  returns bigint language sql volatile set search_path = pg_catalog, outbox, pg_temp
as $$
  insert into outbox.evidence (action_id, kind, proves, reason, attempt, phase, method, url, body_sha256, wire_key,
                               account_identity, status, headers, excerpt, provider_id, recorded_at)
    select p_action_id, e.kind, e.proves, e.reason, e.attempt, e.phase, e.method, e.url, e.body_sha256, e.wire_key,
           e.account_identity, e.status, coalesce(e.headers, '{}'), e.excerpt, e.provider_id,
           outbox.now()
      from jsonb_to_record(p_evidence) as e (
        kind text, proves text, reason text, attempt integer, phase text, method text, url text, body_sha256 text,
        wire_key text, account_identity text, status integer, headers jsonb, excerpt text, provider_id text)
  returning evidence_id
$$;
