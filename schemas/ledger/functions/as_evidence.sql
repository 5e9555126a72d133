-- One piece of evidence as programs and people read it.
create or replace function outbox.as_evidence(p_evidence outbox.evidence)
  returns jsonb language sql stable
as $$
  select jsonb_build_object(
    'kind', (p_evidence).kind, 'proves', (p_evidence).proves, 'reason', (p_evidence).reason,
    'attempt', (p_evidence).attempt, 'phase', (p_evidence).phase, 'method', (p_evidence).method,
    'url', (p_evidence).url, 'body_sha256', (p_evidence).body_sha256, 'wire_key', (p_evidence).wire_key,
    'account_identity', (p_evidence).account_identity, 'status', (p_evidence).status,
    'headers', (p_evidence).headers, 'excerpt', (p_evidence).excerpt, 'provider_id', (p_evidence).provider_id,
    'recorded_at', (p_evidence).recorded_at)
$$;
