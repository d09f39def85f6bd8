-- Numbers over time: what groups did in every minute, and how much was appended to every stream.

-- One row per group, or stream, and minute, and later per ten minutes and per hour. Rows are only inserted: where several are
-- of the same time, flows add up. A minute in which nothing happened has no row. `appended` is what a stream got until the
-- sample that ends its row.
create table if not exists penstock_metric (
  group_id       integer,
  stream         text,
  at             integer not null,
  seconds        integer not null check (seconds in (60, 600, 3600)),
  published      integer not null default 0,
  failed         integer not null default 0,
  dead           integer not null default 0,
  released       integer not null default 0,
  appended       integer not null default 0,
  lag            integer,
  oldest_seconds real,
  pending        integer,
  claimed        integer,
  retrying       integer,
  dead_letters   integer,
  check ((group_id is null) <> (stream is null))
);
create index if not exists penstock_metric_of_group on penstock_metric (group_id, at) where group_id is not null;
create index if not exists penstock_metric_of_stream on penstock_metric (stream, at) where stream is not null;
create index if not exists penstock_metric_by_age on penstock_metric (seconds, at);

-- When somebody sampled: a group without a row had nothing to do then. `at_start`: also in the first minute of the row.
create table if not exists penstock_metric_round (
  at       integer not null,
  seconds  integer not null,
  at_start integer not null default 1,
  primary key (at, seconds)
) without rowid;

-- Up to which lease a group is counted, and which of those leases were still open; and what its current minute has so far.
-- `behind`: there are more.
create table if not exists penstock_metric_mark (
  group_id       integer primary key,
  upto           integer not null default 0,
  open_ids       text not null default '[]',
  lanes          integer not null default 1,
  behind         integer not null default 0,
  at             integer,
  published      integer not null default 0,
  failed         integer not null default 0,
  dead           integer not null default 0,
  released       integer not null default 0,
  lag            integer,
  oldest_seconds real,
  pending        integer,
  claimed        integer,
  retrying       integer,
  dead_letters   integer
);

-- Events that were removed from a stream, and all that it ever got, as of the last sample.
create table if not exists penstock_metric_removed (
  stream text primary key,
  events integer not null
) without rowid;
create table if not exists penstock_metric_sampled (
  stream text primary key,
  events integer not null
) without rowid;

-- When somebody recorded last. Flows before `began_at` are not known.
create table if not exists penstock_metric_turn (
  one         integer primary key check (one = 1),
  began_at    integer,
  sampled_at  integer,
  recorded_at integer,
  folded_at   integer
);
insert or ignore into penstock_metric_turn (one, began_at)
select 1, case when exists (select 1 from penstock_leases)
               then cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer) end;
insert or ignore into penstock_metric_mark (group_id, upto, open_ids, lanes)
select g.group_id,
       coalesce((select max((select max(l.id) from penstock_leases l
                              where l.group_id = g.group_id and l.lanes = g.lanes and l.lane = s.key))
                   from json_each(g.starts) s), 0),
       (select json_group_array(o.id) from penstock_leases o where o.group_id = g.group_id and o.outcome is null), g.lanes
  from penstock_groups g;

-- Leases that are removed before they were counted.
create trigger if not exists penstock_keep_metric after delete on penstock_leases
when coalesce(old.published, 0) + coalesce(old.failed, 0) + coalesce(old.dead, 0) + coalesce(old.released, 0) > 0
begin
  insert into penstock_metric (group_id, at, seconds, published, failed, dead, released)
  select old.group_id, old.ended_at - old.ended_at % 60000000, 60, coalesce(old.published, 0), coalesce(old.failed, 0),
         coalesce(old.dead, 0), coalesce(old.released, 0)
   where not exists (select 1 from penstock_metric_mark m where m.group_id = old.group_id and m.upto >= old.id)
      or exists (select 1 from penstock_metric_mark m cross join json_each(m.open_ids) o
                  where m.group_id = old.group_id and o.value = old.id);
end;

create trigger if not exists penstock_count_removed after delete on penstock_events
begin
  insert into penstock_metric_removed (stream, events) values (old.stream, 1)
  on conflict (stream) do update set events = events + 1;
end;

create trigger if not exists penstock_forget_metric after delete on penstock_groups
begin
  delete from penstock_metric_mark where group_id = old.group_id;
  delete from penstock_metric where group_id = old.group_id;
end;
