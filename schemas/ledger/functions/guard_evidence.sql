-- BEFORE UPDATE or DELETE on evidence: it is kept as it came, until its action is settled. Only its use is noted, and
-- what it quotes goes when its action was redacted.
-- Errors: OB002.
create or replace function outbox.guard_evidence()
  returns trigger language plpgsql set search_path = pg_catalog, outbox, pg_temp
as $$
begin
  if tg_op = 'UPDATE' then
    if old.used_at is null and to_jsonb(new) - 'used_at' = to_jsonb(old) - 'used_at' then
      return new;
    end if;
    if new.excerpt is null and new.headers = '{}' and new.url is null
       and to_jsonb(new) - '{excerpt,headers,url}'::text[] = to_jsonb(old) - '{excerpt,headers,url}'::text[]
       and exists (select from outbox.outbound_actions a
                    where a.action_id = old.action_id and a.redacted_at is not null) then
      return new;
    end if;
  elsif not exists (select from outbox.outbound_actions a where a.action_id = old.action_id
                     and a.delivery_state in ('delivery_pending', 'delivery_unknown')) then
    return old;
  end if;
  raise exception '% of evidence % is not possible: it is kept as it came', lower(tg_op), old.evidence_id
    using errcode = 'OB002';
end $$;
