-- Retention: what was redacted, and whose history was deleted on purpose, so that an audit can tell that from a loss.
-- Two partial indexes lead to what is old enough. Neither names a column that changes before redaction, so that every
-- update of an open action stays a HOT one; the second is empty until something is redacted.

alter table outbox.outbound_actions add column history_deleted_at timestamptz;
comment on column outbox.outbound_actions.redacted_at is
  'When retention removed payload and recipient; the fingerprint in keys still recognises the intent.';
comment on column outbox.outbound_actions.history_deleted_at is
  'When retention deleted the events and the evidence of this settled action.';

create index outbound_actions_unredacted on outbox.outbound_actions (created_at) where redacted_at is null;
create index outbound_actions_with_history on outbox.outbound_actions (redacted_at)
  where redacted_at is not null and history_deleted_at is null;
