-- True, or refuses what a person or a worker could not use, before it can hurt them: labels and the parts of the intent
-- that have no check of their own. Errors: OB012.
create or replace function outbox.check_labels(p_new outbox.outbound_actions)
  returns boolean language plpgsql immutable set search_path = pg_catalog, outbox, pg_temp
as $$
declare
  v_wrong text := case
    when p_new.priority is null or p_new.priority not between 0 and 2 then 'priority'
    when p_new.traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then 'traceparent'
    when length(p_new.ordering_key) not between 1 and 255 then 'ordering_key'
    when length(p_new.tenant) not between 1 and 255 then 'tenant'
    when length(p_new.content_version) not between 1 and 255 then 'content_version'
    when length(p_new.recipient) > 2000 then 'recipient' end;
begin
  if v_wrong is not null then
    raise exception '% is not usable', v_wrong using errcode = 'OB012', hint = case v_wrong
      when 'priority' then 'Use 0 (urgent), 1 (the default) or 2 (whenever there is room).'
      when 'traceparent' then 'Send a W3C traceparent header as it is, or leave it out.'
      when 'recipient' then 'Give at most 2000 characters; what the payload names is taken when recipient is left out.'
      else 'Give 1 to 255 characters, or leave it out.' end;
  end if;
  return true;
end $$;
