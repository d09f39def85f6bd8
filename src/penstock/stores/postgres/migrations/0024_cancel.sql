-- Claimed events that somebody wants to end, by group: their holders are told with the next heartbeat. A request ends with
-- its delivery; what comes back unfinished is given up.
create table if not exists penstock.event_cancels (
  group_id integer not null references penstock.groups (group_id) on delete cascade,
  "offset" bigint not null,
  reason   text not null,
  by       text not null,
  asked_at timestamptz not null,
  primary key (group_id, "offset")
);

alter function penstock.rights() rename to rights_until_0023;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0023() r
  union all
  values ('worker', 'insert, update, delete', 'penstock.event_cancels')
$$;
select penstock.regrant();
