-- The ledger: one row per action, its keys, its work queue, its history, and what is known of every attempt.
-- Why these tables and not fewer: docs/decisions/0002-insert-only-events.md and 0003-hot-queue.md.

create table outbox.ledger (
  singleton       boolean primary key default true check (singleton),
  ledger_id       uuid not null default gen_random_uuid(),
  environment     text not null check (environment ~ '^[a-z][a-z0-9_-]{0,62}$'),
  -- Keys are hashed with this before they leave the database, so that nobody can guess a key from the topic.
  key_hash_secret bytea not null
    default decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
  created_at      timestamptz not null default clock_timestamp()
);
comment on table outbox.ledger is 'Who this ledger is, and which environment it belongs to. One row.';

create table outbox.providers (
  provider          text not null,
  account           text not null,
  operation         text not null,
  mode              text not null check (mode in ('hold', 'shadow', 'live')),
  contract_version  text not null,
  base_url          text not null,
  account_identity  text not null,
  key_max_length    integer not null check (key_max_length > 0),
  key_pattern       text not null,
  key_shared        boolean not null,
  recipient_paths   jsonb not null default '[]' check (jsonb_typeof(recipient_paths) = 'array'),
  payload_max_bytes integer not null check (payload_max_bytes > 0),
  retry_limit       integer not null check (retry_limit >= 0),
  unordered_after_unknown boolean not null default false,
  receipts_expected boolean not null default false,
  review_owner      text not null,
  declared          boolean not null default true,
  updated_at        timestamptz not null default clock_timestamp(),
  primary key (provider, account, operation)
);
comment on table outbox.providers is 'What the relay''s configuration declares; written by outbox providers apply.';

create table outbox.outbound_actions (
  action_id         uuid primary key default gen_random_uuid(),
  -- The intent. Never changes, and is what the fingerprint covers.
  provider          text not null,
  operation         text not null,
  account           text not null default 'default',
  idempotency_key   text collate "C" not null unique,
  recipient         text,
  content_version   text,
  payload           jsonb not null,
  -- Labels. An agent that repeats its turn may change them; the first ones count.
  ordering_key      text,
  not_before        timestamptz,
  deliver_by        timestamptz,
  priority          smallint not null default 1 check (priority between 0 and 2),
  tenant            text,
  traceparent       text check (traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'),
  follows_action_id uuid,
  created_by        text not null default session_user,
  created_at        timestamptz not null default clock_timestamp(),
  -- The three facts.
  execution_state   text not null default 'action_created',
  delivery_state    text not null default 'delivery_pending',
  receipt_state     text not null default 'not_expected',
  provider_id       text,
  resolution        text check (resolution in ('response', 'lookup', 'replay', 'receipt', 'operator', 'imported')),
  duplicate_suspected boolean not null default false,
  -- What the first claim fixes, before anything is sent.
  wire_key          text,
  contract_version  text,
  base_url          text,
  account_identity  text,
  -- How far it got.
  attempt_count     integer not null default 0,
  resend_count      integer not null default 0,
  retries_from      integer not null default 0,
  first_attempt_at  timestamptz,
  last_attempt_at   timestamptz,
  in_flight_until   timestamptz,
  unknown_since     timestamptz,
  cancel_requested_at timestamptz,
  hold_released_at  timestamptz,
  last_error        text,
  last_reason       text,
  last_event        text not null default 'inserted',
  last_actor        text not null default 'agent',
  event_sequence    integer not null default 1,
  redacted_at       timestamptz,
  updated_at        timestamptz not null default clock_timestamp()
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
comment on table outbox.outbound_actions is 'One row per action. Agents INSERT here; nobody updates it but through functions.';

create table outbox.keys (
  idempotency_key text collate "C" primary key,
  fingerprint     bytea not null,
  action_id       uuid not null
);
comment on table outbox.keys is 'Every key ever used, with the fingerprint of its intent. Kept for ever.';

create table outbox.work_queue (
  action_id       uuid primary key,
  kind            text not null check (kind in ('dispatch', 'hold', 'unknown')),
  provider        text not null,
  account         text not null,
  ordering_key    text,
  blocks          boolean not null default true,
  position        bigint generated always as identity,
  priority        smallint not null,
  due_at          timestamptz not null,
  deliver_by      timestamptz,
  claim_token     uuid,
  claimed_until   timestamptz,
  claimed_by      text,
  returns_to      text,
  in_flight_before     timestamptz,
  first_attempt_before timestamptz,
  lookups         integer not null default 0,
  replays         integer not null default 0,
  evidence_waiting boolean not null default false
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
comment on table outbox.work_queue is 'What is open: when it is due, and under whose claim. Settled actions are not in it.';

create index work_queue_dispatch_due on outbox.work_queue (provider, account, priority, due_at)
  where kind = 'dispatch' and claim_token is null;
create index work_queue_unknown_due on outbox.work_queue (due_at) where kind = 'unknown' and claim_token is null;
create index work_queue_claimed on outbox.work_queue (claimed_until) where claim_token is not null;
create index work_queue_ordering on outbox.work_queue (provider, account, ordering_key, position)
  where ordering_key is not null;
create index work_queue_deadline on outbox.work_queue (deliver_by) where deliver_by is not null;
create index work_queue_evidence on outbox.work_queue (action_id) where evidence_waiting;

create table outbox.action_events (
  action_id      uuid not null,
  sequence       integer not null,
  event_id       text not null,
  type           text not null,
  source         text not null,
  specversion    text not null default '1.0',
  content_type   text not null default 'application/json',
  time           text not null,
  subject        text not null,
  traceparent    text,
  data           text not null,
  created_by     text not null,
  occurred_at    timestamptz not null,
  transaction_id xid8 not null default pg_current_xact_id(),
  primary key (action_id, sequence)
);
comment on table outbox.action_events is 'Append-only history: one row per change. The only table that is captured.';
create index action_events_by_transaction on outbox.action_events (transaction_id, action_id, sequence);
create index action_events_by_time on outbox.action_events using brin (occurred_at);

create table outbox.evidence (
  evidence_id      bigint generated always as identity primary key,
  action_id        uuid not null,
  kind             text not null check (kind in ('response', 'no_response', 'late_acceptance', 'lookup', 'replay',
                                                 'receipt', 'statement')),
  proves           text not null check (proves in ('acceptance', 'refusal', 'absence', 'arrival', 'nothing')),
  reason           text not null,
  attempt          integer,
  phase            text,
  method           text,
  url              text,
  body_sha256      text,
  wire_key         text,
  account_identity text,
  status           integer,
  headers          jsonb not null default '{}',
  excerpt          text,
  provider_id      text,
  recorded_at      timestamptz not null default clock_timestamp(),
  recorded_by      text not null default session_user,
  used_at          timestamptz
);
comment on table outbox.evidence is 'What is known of every attempt that did not end in a plain acceptance.';
create index evidence_by_action on outbox.evidence (action_id, evidence_id);

create table outbox.incidents (
  incident_id bigint generated always as identity primary key,
  provider    text not null,
  account     text not null,
  operation   text not null,
  reason      text not null,
  owner       text not null,
  opened_at   timestamptz not null default clock_timestamp()
);
comment on table outbox.incidents is 'Reviews with one cause, grouped. An incident is open while one of its reviews is.';
create index incidents_by_cause on outbox.incidents (provider, account, operation, reason, owner, incident_id);

create table outbox.reviews (
  review_id   bigint generated always as identity primary key,
  incident_id bigint not null references outbox.incidents,
  action_id   uuid not null,
  reason      text not null,
  owner       text not null,
  missing     text not null,
  next_step   text not null,
  opened_at   timestamptz not null default clock_timestamp(),
  due_at      timestamptz not null,
  closed_at   timestamptz,
  decision    text,
  decision_reason text,
  decided_by  text
);
comment on table outbox.reviews is 'The operator queue: who must look at what, by when, and what was decided.';
create unique index reviews_open on outbox.reviews (action_id) where closed_at is null;
create index reviews_open_incident on outbox.reviews (incident_id) where closed_at is null;
create index reviews_by_action on outbox.reviews (action_id);
create index reviews_open_due on outbox.reviews (due_at) where closed_at is null;

create table outbox.counter_deltas (
  delta_id bigint generated always as identity primary key,
  provider text not null,
  account  text not null,
  name     text not null,
  amount   bigint not null
);
create table outbox.counters (
  provider text not null,
  account  text not null,
  name     text not null,
  total    bigint not null,
  primary key (provider, account, name)
);
comment on table outbox.counter_deltas is 'Insert-only, so that no agent waits for another to count; rolled up into counters.';

create table outbox.transitions (
  event          text not null,
  actor          text not null,
  from_execution text not null,
  from_delivery  text not null,
  to_execution   text not null,
  to_delivery    text not null,
  primary key (from_execution, from_delivery, event, actor, to_execution, to_delivery)
);
comment on table outbox.transitions is 'Every legal step; generated from schemas/states.toml.';
create table outbox.receipt_transitions (
  event        text not null,
  actor        text not null,
  from_receipt text not null,
  to_receipt   text not null,
  primary key (from_receipt, event, actor, to_receipt)
);
comment on table outbox.receipt_transitions is 'Every legal step of a receipt; generated from schemas/states.toml.';

create type outbox.claimed_action as (
  action_id uuid, claim_token uuid, attempt integer, provider text, account text, operation text, mode text,
  idempotency_key text, wire_key text, recipient text, payload text, contract_version text, base_url text,
  account_identity text, ordering_key text, created_at timestamptz, first_attempt_at timestamptz,
  due_age_s double precision, traceparent text
);
comment on type outbox.claimed_action is 'An action under a claim, with all that is needed to send it.';

-- A time-ordered id keeps the primary key's index compact; servers before 18 have only the random one.
do $$
begin
  if exists (select from pg_proc where proname = 'uuidv7' and pronamespace = 'pg_catalog'::regnamespace) then
    alter table outbox.outbound_actions alter column action_id set default uuidv7();
  end if;
end $$;

create publication outbox_events for table outbox.action_events with (publish = 'insert');
