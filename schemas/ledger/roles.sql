-- What each role may do. Role names are filled in by the migration; nothing is granted to PUBLIC.
revoke all on schema outbox from public;
revoke all on all tables in schema outbox from public;
revoke all on all functions in schema outbox from public;
grant usage on schema outbox to {agent}, {relay}, {reconciler}, {operator}, {capture};

-- The agent: the intent, the labels, its own status, and nothing else.
grant insert (provider, operation, account, idempotency_key, recipient, content_version, payload, ordering_key,
              not_before, deliver_by, priority, tenant, traceparent, follows_action_id)
  on outbox.outbound_actions to {agent};
grant select (action_id, idempotency_key) on outbox.outbound_actions to {agent};
grant select on outbox.action_status to {agent};
grant execute on function
  outbox.enqueue(text, text, text, jsonb, text, text, text, text, timestamptz, timestamptz, integer, text, text, uuid),
  outbox.enqueue(text, text, text, text, text, text, text, text, timestamptz, timestamptz, integer, text, text, uuid),
  outbox.enqueue(text, text, text, json, text, text, text, text, timestamptz, timestamptz, integer, text, text, uuid),
  outbox.cancel(text), outbox.changes(text, integer), outbox.advice(text, text, boolean) to {agent};

grant execute on function outbox.ledger_identity() to {relay}, {reconciler}, {operator}, {agent};
grant execute on function outbox.schema_version() to {relay}, {reconciler}, {operator};
grant execute on function outbox.declared_accounts() to {relay}, {reconciler}, {operator};
grant execute on function outbox.probe_write(), outbox.sweep_expired_claims(integer, text) to {relay}, {reconciler};

grant execute on function
  outbox.claim_actions(jsonb, uuid, integer, integer, text), outbox.recall_claims(uuid),
  outbox.record_outcomes(jsonb), outbox.next_dispatch_in(jsonb) to {relay};

grant execute on function
  outbox.claim_unknowns(integer, uuid, integer, integer, text, jsonb), outbox.recall_unknowns(uuid),
  outbox.begin_replay(uuid, uuid, integer, integer), outbox.record_resolutions(jsonb),
  outbox.postpone_unknowns(jsonb), outbox.open_reviews(jsonb), outbox.sweep_deadlines(integer),
  outbox.next_unknown_in(), outbox.roll_up_counters(integer),
  outbox.redact_settled(integer, timestamptz, integer),
  outbox.delete_history(integer, integer, timestamptz, integer) to {reconciler};

grant execute on function outbox.action_counters(), outbox.backlog(), outbox.capture_health(text)
  to {reconciler}, {operator};

grant execute on function
  outbox.list_actions(text, text, text, text, integer), outbox.find_action(text), outbox.action_history(uuid),
  outbox.action_request(uuid), outbox.list_reviews(boolean, text, bigint, integer),
  outbox.decide_review(bigint, text, text, text),
  outbox.audit_totals(), outbox.audit_keys(text, integer), outbox.audit_actions(uuid, integer) to {operator};
grant execute on function outbox.list_reviews(boolean, text, bigint, integer) to {reconciler};

grant select on outbox.action_events to {capture};
