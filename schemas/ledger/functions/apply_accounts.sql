-- Replaces what is declared by these rows. A row that is no longer declared stays, refused to agents, for the actions
-- that name it. p_rows: objects with the columns of outbox.providers.
create or replace function outbox.apply_accounts(p_rows jsonb)
  returns integer language plpgsql security definer set search_path = pg_catalog, outbox, pg_temp
as $$
declare v_count integer;
begin
  perform pg_advisory_xact_lock(hashtextextended('outbox.apply_accounts', 0));
  update outbox.providers set declared = false, updated_at = outbox.now() where declared;
  insert into outbox.providers as p (provider, account, operation, mode, contract_version, base_url, account_identity,
      key_max_length, key_pattern, key_shared, recipient_paths, payload_max_bytes, retry_limit,
      unordered_after_unknown, receipts_expected, review_owner)
    select r.provider, r.account, r.operation, r.mode, r.contract_version, r.base_url, r.account_identity,
      r.key_max_length, r.key_pattern, r.key_shared, r.recipient_paths, r.payload_max_bytes, r.retry_limit,
      r.unordered_after_unknown, r.receipts_expected, r.review_owner
      from jsonb_to_recordset(p_rows) as r (provider text, account text, operation text, mode text,
        contract_version text, base_url text, account_identity text, key_max_length integer, key_pattern text,
        key_shared boolean, recipient_paths jsonb, payload_max_bytes integer, retry_limit integer,
        unordered_after_unknown boolean, receipts_expected boolean, review_owner text)
    on conflict (provider, account, operation) do update set
      mode = excluded.mode, contract_version = excluded.contract_version, base_url = excluded.base_url,
      account_identity = excluded.account_identity, key_max_length = excluded.key_max_length,
      key_pattern = excluded.key_pattern, key_shared = excluded.key_shared,
      recipient_paths = excluded.recipient_paths, payload_max_bytes = excluded.payload_max_bytes,
      retry_limit = excluded.retry_limit, unordered_after_unknown = excluded.unordered_after_unknown,
      receipts_expected = excluded.receipts_expected, review_owner = excluded.review_owner,
      declared = true, updated_at = outbox.now();
  get diagnostics v_count = row_count;
  return v_count;
end $$;
