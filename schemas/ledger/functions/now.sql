-- The only clock of the ledger: read after a lock was obtained, never the start of the transaction.
create or replace function outbox.now() returns timestamptz language sql volatile
as $$ select clock_timestamp() $$;
