-- The consumer's own tables. They live in its own database: it never writes to the ledger.
create schema if not exists status_reader;

-- Which records were applied. A record has the same ce_id however often it is read, so this is all that "once" takes.
create table if not exists status_reader.seen (
  event_id text primary key,
  seen_at  timestamptz not null default now()
);
-- Keep it longer than the topic keeps records; the README says how to prune it.
create index if not exists seen_by_age on status_reader.seen using brin (seen_at);

-- The effect of this example: the latest known state of every action.
create table if not exists status_reader.deliveries (
  action_id       text primary key,
  sequence        bigint not null,
  provider        text not null,
  operation       text not null,
  execution_state text not null,
  delivery_state  text not null,
  receipt_state   text not null,
  occurred_at     text not null,
  changes         bigint not null default 0
);

-- Records that could not be used. They are kept so that one bad record neither stops the reader nor disappears.
create table if not exists status_reader.poison (
  topic     text not null,
  partition integer not null,
  position  bigint not null,
  reason    text not null,
  event_id  text,
  value     bytea,
  kept_at   timestamptz not null default now(),
  primary key (topic, partition, position)
);
