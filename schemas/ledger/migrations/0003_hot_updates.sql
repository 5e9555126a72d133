-- What an action costs PostgreSQL between its INSERT and its end.
-- Half of every page is kept for the new versions of its rows, one for the claim and one for the outcome, so that both
-- are HOT: with a fifth of it two of three went to another page, with a new entry in every index. Holds for new pages.
-- A change is numbered by the UPDATE that makes it and checked by guard_actions: a trigger BEFORE it locks the row twice.

alter table outbox.outbound_actions set (fillfactor = 50);
drop trigger if exists number_change on outbox.outbound_actions;
-- squawk-ignore ban-drop-function
drop function if exists outbox.number_change();
-- These return a value now.
-- squawk-ignore ban-drop-function
drop function if exists outbox.check_payload(jsonb, text, integer), outbox.check_labels(outbox.outbound_actions);
