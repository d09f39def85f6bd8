-- Numbers over time: what groups did in every minute, and how much was appended to every stream.

-- One row per group, or stream, and minute, and later per ten minutes and per hour. Rows are only inserted: where several are
-- of the same time, flows add up. A minute in which nothing happened has no row. `appended` is what a stream got until the
-- sample that ends its row.
create table if not exists penstock.metric (
  group_id       integer,
  stream         text,
  at             timestamptz not null,
  seconds        integer not null check (seconds in (60, 600, 3600)),
  published      bigint not null default 0,
  failed         bigint not null default 0,
  dead           bigint not null default 0,
  released       bigint not null default 0,
  appended       bigint not null default 0,
  lag            bigint,
  oldest_seconds double precision,
  pending        bigint,
  claimed        bigint,
  retrying       bigint,
  dead_letters   bigint,
  check ((group_id is null) <> (stream is null))
);
create index if not exists metric_of_group on penstock.metric (group_id, at) where group_id is not null;
create index if not exists metric_of_stream on penstock.metric (stream, at) where stream is not null;
create index if not exists metric_by_age on penstock.metric (seconds, at);

-- When somebody sampled: a group without a row had nothing to do then. `at_start`: also in the first minute of the row.
create table if not exists penstock.metric_round (
  at       timestamptz not null,
  seconds  integer not null,
  at_start boolean not null default true,
  primary key (at, seconds)
);

-- Up to which lease a group is counted, and which of those leases were still open; and what its current minute has so far.
-- (Leases of a group commit in the order of their ids: they are born under the lock of the group.) `behind`: there are more.
create table if not exists penstock.metric_mark (
  group_id       integer primary key,
  upto           bigint not null default 0,
  open_ids       bigint[] not null default '{}',
  lanes          smallint not null default 1,
  behind         boolean not null default false,
  at             timestamptz,
  published      bigint not null default 0,
  failed         bigint not null default 0,
  dead           bigint not null default 0,
  released       bigint not null default 0,
  lag            bigint,
  oldest_seconds double precision,
  pending        bigint,
  claimed        bigint,
  retrying       bigint,
  dead_letters   bigint
);

-- Events that were removed from a stream, and all that it ever got, as of the last sample. (Two tables: whoever removes events
-- and whoever samples do not wait for each other.)
create table if not exists penstock.metric_removed (
  stream text primary key,
  events bigint not null
);
create table if not exists penstock.metric_sampled (
  stream text primary key,
  events bigint not null
);

-- Whoever has locked the row records; nobody waits for it. Flows before `began_at` are not known.
create table if not exists penstock.metric_turn (
  one         boolean primary key default true check (one),
  began_at    timestamptz,
  sampled_at  timestamptz,
  recorded_at timestamptz,
  folded_at   timestamptz
);
insert into penstock.metric_turn (began_at)
select case when exists (select 1 from penstock.leases) then clock_timestamp() end
on conflict do nothing;
insert into penstock.metric_mark (group_id, upto, open_ids, lanes)
select g.group_id,
       coalesce((select max(n.id) from generate_series(0, g.lanes - 1) as a(lane)
                  cross join lateral (select l.id from penstock.leases l
                                       where l.group_id = g.group_id and l.lanes = g.lanes and l.lane = a.lane
                                       order by l.id desc limit 1) n), 0),
       array(select o.id from penstock.open_lease o where o.group_id = g.group_id order by o.id), g.lanes
  from penstock.groups g
on conflict do nothing;

-- Leases that are removed before they were counted. (The row of the turn is written, so that who records sees it, whatever the
-- isolation.)
create or replace function penstock.keep_metric() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform 1 from removed_leases l left join penstock.metric_mark m on m.group_id = l.group_id
    where l.id > coalesce(m.upto, 0)
       or l.id in (select unnest(o.open_ids) from penstock.metric_mark o
                    where o.group_id in (select r.group_id from removed_leases r));
  if not found then
    return null;
  end if;
  update penstock.metric_turn set recorded_at = recorded_at;
  insert into penstock.metric (group_id, at, seconds, published, failed, dead, released)
  select l.group_id, date_bin('1 minute', l.ended_at, '1970-01-01 00:00:00+00'), 60, sum(coalesce(l.published, 0)),
         sum(coalesce(l.failed, 0)), sum(coalesce(l.dead, 0)), sum(coalesce(l.released, 0))
    from removed_leases l left join penstock.metric_mark m on m.group_id = l.group_id
   where (l.id > coalesce(m.upto, 0)
          or l.id in (select unnest(o.open_ids) from penstock.metric_mark o
                       where o.group_id in (select r.group_id from removed_leases r)))
     and coalesce(l.published, 0) + coalesce(l.failed, 0) + coalesce(l.dead, 0) + coalesce(l.released, 0) > 0
   group by 1, 2;
  return null;
end $$;
drop trigger if exists keep_metric on penstock.leases;
create trigger keep_metric after delete on penstock.leases referencing old table as removed_leases
  for each statement execute function penstock.keep_metric();

create or replace function penstock.count_removed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into penstock.metric_removed as r (stream, events)
  select e.stream, count(*) from removed_events e group by e.stream order by e.stream
  on conflict (stream) do update set events = r.events + excluded.events;
  return null;
end $$;
drop trigger if exists count_removed on penstock.events;
create trigger count_removed after delete on penstock.events referencing old table as removed_events
  for each statement execute function penstock.count_removed();

create or replace function penstock.forget_metric() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from penstock.metric_mark where group_id = old.group_id;
  delete from penstock.metric where group_id = old.group_id;
  return null;
end $$;
drop trigger if exists forget_metric on penstock.groups;
create trigger forget_metric after delete on penstock.groups for each row execute function penstock.forget_metric();

alter function penstock.rights() rename to rights_until_0027;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0027() r
  union all
  values ('worker', 'insert, delete', 'penstock.metric, penstock.metric_round'),
         ('worker', 'insert, update, delete', 'penstock.metric_mark'),
         ('worker', 'insert, update', 'penstock.metric_sampled'),
         ('worker', 'update', 'penstock.metric_turn')
$$;
select penstock.regrant();
