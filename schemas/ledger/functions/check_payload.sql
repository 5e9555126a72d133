-- True, or refuses a payload that could not be sent, in the agent's own transaction. p_text is p_payload::text. Errors: OB005.
create or replace function outbox.check_payload(p_payload jsonb, p_text text, p_max_bytes integer)
  returns boolean language plpgsql immutable set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' then
    raise exception 'payload must be a JSON object, not %', coalesce(jsonb_typeof(p_payload), 'null')
      using errcode = 'OB005', hint = 'Put the fields of the provider''s request into one JSON object.';
  end if;
  if octet_length(p_text) > p_max_bytes then
    raise exception 'payload has % bytes; this operation takes at most %', octet_length(p_text), p_max_bytes
      using errcode = 'OB005', hint = 'Store large content elsewhere and send a reference to it.';
  end if;
  -- Walking the tree is the dear part: only a text with so many brackets can be so deep.
  if 2 * octet_length(p_text) - octet_length(replace(p_text, '[', '')) - octet_length(replace(p_text, '{', '')) > 64
     and p_payload @? '$.**{65 to last}' then
    raise exception 'payload is nested deeper than 64 levels'
      using errcode = 'OB005', hint = 'Flatten the payload.';
  end if;
  return true;
end $$;
