-- What can be said about the change capture from inside the database: settings, publication, slot and the WAL it keeps.
create or replace function outbox.capture_health(p_slot text)
  returns jsonb language sql stable security definer set search_path = pg_catalog, outbox, pg_temp
as $$
  select jsonb_build_object(
    'wal_level', current_setting('wal_level'),
    'publication', exists (select from pg_publication where pubname = 'outbox_events'),
    'max_slot_wal_keep_size', current_setting('max_slot_wal_keep_size'),
    'slot', (select jsonb_build_object('active', s.active, 'wal_status', s.wal_status,
               'retained_bytes', pg_wal_lsn_diff(
                  case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end,
                  s.restart_lsn))
               from pg_replication_slots s where s.slot_name = p_slot))
$$;
