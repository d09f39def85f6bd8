-- Retention policies, archives, and erased payloads.

-- How long the events of a stream stay, in seconds. `swept`: up to here only events are left that something needs, or needed
-- when they were looked at; `passed_at`: when these were last looked at again. Whoever has locked the row goes on; nobody
-- waits for it. A round with nothing to do finds that out from `next_at` alone.
create table if not exists penstock.retention (
  stream    text primary key check (stream not like 'jobs:%'),
  keep      double precision not null check (keep >= 0),
  keep_dead double precision check (keep_dead > 0),
  archive   text,
  swept     bigint not null default 0,
  passed_at timestamptz,
  next_at   timestamptz not null,
  by        text not null,
  set_at    timestamptz not null
);
create index if not exists retention_due on penstock.retention (next_at);

-- Copies of the events of a stream in (low, high], as Parquet files below `place`. Those of one place follow each other:
-- together they hold every event above `complete_from`.
create table if not exists penstock.archives (
  id            bigint generated always as identity primary key,
  stream        text not null,
  place         text not null,
  low           bigint not null,
  high          bigint not null,
  complete_from bigint not null,
  state         text not null check (state in ('writing', 'done')),
  folder        text,
  version       integer not null default 1,
  events        bigint not null default 0,
  bytes         bigint not null default 0,
  by            text not null,
  began_at      timestamptz not null,
  ended_at      timestamptz,
  check (low <= high)
);
create unique index if not exists archives_writing on penstock.archives (stream, place) where state = 'writing';
create index if not exists archives_stream on penstock.archives (stream, high);
create table if not exists penstock.archive_files (
  archive_id    bigint not null,
  path          text not null,
  low           bigint not null,
  high          bigint not null,
  events        bigint not null,
  bytes         bigint not null,
  footer_sha256 text not null,
  first_at      timestamptz not null,
  last_at       timestamptz not null,
  primary key (archive_id, path)
);
-- Files that were replaced, and are to be deleted.
create table if not exists penstock.archive_waste (
  archive_id bigint not null,
  path       text not null,
  primary key (archive_id, path)
);

-- Events that were restored stay at least until then.
create table if not exists penstock.holds (
  stream   text not null,
  low      bigint not null,
  high     bigint not null,
  until_at timestamptz not null,
  primary key (stream, low, high)
);

-- How often something of a stream was pruned: a restore sees whether that happened while it was at work.
alter table penstock.pruned add column if not exists changes bigint not null default 0;
create or replace function penstock.count_prune() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.changes := old.changes + 1;
  return new;
end $$;
drop trigger if exists count_prune on penstock.pruned;
create trigger count_prune before update on penstock.pruned for each row execute function penstock.count_prune();

-- Nothing is deleted or rewritten but by prune, rewind and erase, which say so for the length of their statement.
create or replace function penstock.refuse() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'DELETE' and current_setting('penstock.maintenance', true) = pg_current_xact_id()::text then
    return null;
  end if;
  if tg_op = 'UPDATE' and current_setting('penstock.erasing', true) = pg_current_xact_id()::text then
    return null;
  end if;
  raise exception 'penstock: % of % is refused: it is append-only', tg_op, tg_table_name
    using errcode = 'PS001', hint = 'Only prune, rewind and erase remove anything. See `penstock explain append_only`.';
end $$;

-- Events of a stream in (low, high] that a group has not finished, or whose dead letter is to be kept.
create or replace function penstock.needed_events(a_stream text, low bigint, high bigint, dead_before timestamptz)
returns setof bigint language sql stable set search_path = pg_catalog, pg_temp as $$
  with mine as materialized (
    select group_id from penstock.groups where stream = a_stream
  )
  select d."offset" from penstock.deliveries d
   where d.group_id in (select group_id from mine) and d."offset" > low and d."offset" <= high
     and (d.state in ('PENDING', 'CLAIMED')
          or (d.state = 'DEAD' and d.reason is distinct from 'purged' and d.reason is distinct from 'mended'
              and (dead_before is null or d.dead_at > dead_before)))
  union
  select e."offset" from penstock.returned r
   cross join lateral (select "offset" from penstock.events
                        where stream = a_stream and "offset" > greatest(r.low, low) and "offset" <= least(r.high, high)
                          and coalesce(bucket, mod("offset", 256)) * r.lanes / 256 = r.lane offset 0) e
   where r.group_id in (select group_id from mine) and r.high > low and r.low < high
  union
  select e."offset" from mine g
   cross join lateral (select * from penstock.open_lease o where o.group_id = g.group_id and o.offsets is null offset 0) l
   cross join lateral (select "offset" from penstock.events
                        where stream = a_stream and "offset" > greatest(l.low, low) and "offset" <= least(l.high, high)
                          and coalesce(bucket, mod("offset", 256)) * l.lanes / 256 = l.lane offset 0) e
   where l.high > low and l.low < high
  union
  select e."offset" from penstock.lane l
   cross join lateral (select * from penstock.binding_span where group_id = l.group_id offset 0) b
   cross join lateral (select "offset" from penstock.events
                        where stream = a_stream and "offset" > greatest(l.cursor, b.low, low)
                          and "offset" <= least(b.high, high)
                          and coalesce(bucket, mod("offset", 256)) * l.lanes / 256 = l.lane
                          and (b.type_regex is null or event_type ~ b.type_regex)
                          and (b.headers is null or headers @> b.headers) offset 0) e
   where l.stream = a_stream and l.cursor < high
$$;

-- Remove the events of a stream in (low, high] but those that are kept, with their rows and their lines in the attempt log.
-- Applies a stored policy and nothing else, whoever calls it: refuses what is too young, needed, held, or not archived
-- where the policy asks for that. (The owner's rights: a worker removes nothing else.)
create or replace function penstock.expire_events(a_stream text, low bigint, high bigint, kept bigint[], at timestamptz)
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  policy penstock.retention;
  gone   bigint[];
begin
  if not exists (select 1 from penstock.test_clock) then
    at := clock_timestamp();
  end if;
  perform 1 from penstock.group_locks l
   where l.group_id in (select g.group_id from penstock.groups g where g.stream = a_stream) order by l.group_id for update;
  select r.* into policy from penstock.retention r where r.stream = a_stream;
  gone := array(select e."offset" from penstock.events e
                 where e.stream = a_stream and e."offset" > low and e."offset" <= high and e."offset" <> all (kept));
  if policy.stream is null
     or exists (select 1 from penstock.events e
                 where e."offset" = any (gone) and e.created_at > at - make_interval(secs => policy.keep))
     or exists (select 1 from penstock.needed_events(a_stream, low, high, at - make_interval(secs => policy.keep_dead)) n
                 where n = any (gone))
     or exists (select 1 from penstock.holds h cross join unnest(gone) o
                 where h.stream = a_stream and h.until_at > at and o > h.low and o <= h.high)
     or (policy.archive is not null
         and (select max(o) from unnest(gone) o)
             > coalesce((select max(a.high) from penstock.archives a
                          where a.stream = a_stream and a.place = policy.archive and a.state = 'done'), 0)) then
    raise exception 'penstock: only events that the policy of the stream lets go can be removed' using errcode = 'PS001';
  end if;
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.deliveries d using penstock.groups g
   where g.stream = a_stream and d.group_id = g.group_id and d."offset" = any (gone);
  delete from penstock.attempt_log a using penstock.groups g
   where g.stream = a_stream and a.group_id = g.group_id and a."offset" = any (gone);
  delete from penstock.events e where e."offset" = any (gone);
  perform set_config('penstock.maintenance', '', true);
  insert into penstock.pruned (stream, upto) select a_stream, max(o) from unnest(gone) o having count(*) > 0
    on conflict (stream) do update set upto = greatest(excluded.upto, penstock.pruned.upto);
end $$;

-- Remove ended leases of a group of which no event is left, among these, and those of ranges that end in (low, high] or just
-- above it; and actions on such ranges. What stays: the newest of a lane, which names what is open, the one that says how far
-- a lane has got, and what a streaming reader may ask for by its number. Removes nothing else, whoever calls it.
create or replace function penstock.expire_leases(a_group integer, ids bigint[], low bigint, high bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  a_stream constant text := (select g.stream from penstock.groups g where g.group_id = a_group);
  widest   constant int := (select g.lanes from penstock.groups g where g.group_id = a_group);
begin
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.leases where id in (
    with recursive named(id) as (
      select i from unnest(ids) i
      union
      select k.kept_from from named n join penstock.leases k on k.id = n.id where k.kept_from is not null)
    select l.id from penstock.leases l
     where l.id = any (array(
             select n.id from named n
             union
             select f.id
               from (select w.lanes, generate_series(0, w.lanes - 1) as lane
                       from unnest(array[1, 2, 4, 8, 16, 32, 64, 128, 256]) as w(lanes) where w.lanes <= widest) x
              cross join lateral (
                    (select y.id from penstock.leases y
                      where y.group_id = a_group and y.lanes = x.lanes and y.lane = x.lane and y.fresh
                        and y.high > low and y.high <= high)
                     union all
                    (select y.id from penstock.leases y
                      where y.group_id = a_group and y.lanes = x.lanes and y.lane = x.lane and y.fresh and y.high > high
                      order by y.high limit 1)) f
             union
             select f.id from penstock.leases f
              where f.group_id = a_group and f.offsets is null and not f.fresh and f.high > low and f.high <= high))
       and l.group_id = a_group and l.outcome is not null
       and not exists (select 1 from penstock.reader_claims c where c.lease = l.id)
       and l.id < (select n.id from penstock.leases n where n.group_id = a_group and n.lanes = l.lanes and n.lane = l.lane
                    order by n.id desc limit 1)
       and (not l.fresh or l.high < (select n.high from penstock.leases n
                                      where n.group_id = a_group and n.lanes = l.lanes and n.lane = l.lane and n.fresh
                                      order by n.high desc limit 1))
       and case when l.offsets is null
                then not exists (select 1 from penstock.events e
                                  where e.stream = a_stream and e."offset" > l.low and e."offset" <= l.high
                                    and coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane)
                else not exists (select 1 from penstock.events e where e."offset" = any (l.offsets)) end);
  perform set_config('penstock.maintenance', '', true);
  delete from penstock.range_actions x
   where x.group_id = a_group and x.high <= high
     and not exists (select 1 from penstock.events e
                      where e.stream = a_stream and e."offset" > x.low and e."offset" <= x.high);
end $$;

-- Put archived events back under their own offsets: only where events were pruned, and only what is not there; returns the
-- offsets of those that were put back. For the owner alone: nobody else writes the column "offset". (The trigger announces
-- this like every insert; the offsets lie far below whatever is announced.)
create or replace function penstock.restore_events(
  a_stream text, offsets bigint[], event_ids uuid[], event_types text[], payloads bytea[], content_types text[],
  all_headers text[], all_metadata text[], partition_keys text[], ordering_keys text[], times timestamptz[],
  created timestamptz[])
returns setof bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if a_stream like 'jobs:%'
     or (select max(o) from unnest(offsets) o)
        > coalesce((select p.upto from penstock.pruned p where p.stream = a_stream), 0) then
    raise exception 'penstock: only events that were pruned can be restored' using errcode = 'PS001';
  end if;
  return query
  insert into penstock.events as e ("offset", stream, event_id, event_type, payload, content_type, headers, metadata,
                                    partition_key, ordering_key, bucket, available_at, created_at)
  overriding system value
  select n."offset", a_stream, n.event_id, n.event_type, n.payload, n.content_type, n.headers::jsonb, n.metadata::jsonb,
         n.partition_key, n.ordering_key, get_byte(sha256(convert_to(n.ordering_key, 'UTF8')), 0), n.available_at,
         n.created_at
    from unnest(offsets, event_ids, event_types, payloads, content_types, all_headers, all_metadata, partition_keys,
                ordering_keys, times, created)
      as n("offset", event_id, event_type, payload, content_type, headers, metadata, partition_key, ordering_key,
           available_at, created_at)
  on conflict do nothing
  returning e."offset";
end $$;

-- Replace the payload of an event, and mark it; what its failures said goes with it, their codes stay.
create or replace function penstock.erase_event(an_event uuid, a_payload bytea, mark text, said text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  at    bigint;
  mine  integer[];
  kinds text[];
begin
  select e."offset", array(select g.group_id from penstock.groups g where g.stream = e.stream) into at, mine
    from penstock.events e where e.event_id = an_event;
  perform set_config('penstock.erasing', pg_current_xact_id()::text, true);
  update penstock.events e
     set payload = a_payload, metadata = coalesce(e.metadata, '{}') || jsonb_build_object('penstock-erased', mark)
   where e."offset" = at;
  perform set_config('penstock.erasing', '', true);
  kinds := array(select a.fingerprint from penstock.attempt_log a
                  where a.group_id = any (mine) and a."offset" = at and a.fingerprint is not null
                  union
                 select d.fingerprint from penstock.deliveries d
                  where d.group_id = any (mine) and d."offset" = at and d.fingerprint is not null);
  update penstock.attempt_log a set error = said
   where a.group_id = any (mine) and a."offset" = at and a.error is not null;
  update penstock.deliveries d set last_error = said
   where d.group_id = any (mine) and d."offset" = at and d.last_error is not null;
  update penstock.fingerprints f set message = said, traceback = null where f.fingerprint = any (kinds);
  update penstock.job_notes n set message = null, result = null where n."offset" = at;
end $$;
revoke execute on function penstock.needed_events(text, bigint, bigint, timestamptz),
  penstock.expire_events(text, bigint, bigint, bigint[], timestamptz),
  penstock.expire_leases(integer, bigint[], bigint, bigint),
  penstock.restore_events(text, bigint[], uuid[], text[], bytea[], text[], text[], text[], text[], text[], timestamptz[],
                          timestamptz[]),
  penstock.erase_event(uuid, bytea, text, text) from public;

alter function penstock.rights() rename to rights_until_0029;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0029() r
  union all
  values ('worker', 'update (swept, passed_at, next_at)', 'penstock.retention'),
         ('worker', 'execute', 'function penstock.expire_events(text, bigint, bigint, bigint[], timestamptz)'),
         ('worker', 'execute', 'function penstock.expire_leases(integer, bigint[], bigint, bigint)')
$$;
select penstock.regrant();
