-- The business side of the agent examples: one table that the agent writes beside its actions. Run it as the owner of
-- the database; the agents themselves have the rights that `outbox migrate` gives outbox_agent, and these.
create schema if not exists shop;
create table if not exists shop.orders (
  order_id text primary key,
  email    text not null,
  status   text not null
);
grant usage on schema shop to outbox_agent;
grant select, insert, update on shop.orders to outbox_agent;
