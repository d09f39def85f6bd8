-- Thousands of open leases, and hundreds of job types: a claim still looks at few of them.

-- The newest lease of a group without keys names those that were open before it. Where they are many, they stand here
-- instead, and none of them expires before `nothing_before`, so that claims need not look at them. Some may have ended.
create table if not exists penstock.listed_leases (
  group_id       integer primary key,
  ids            bigint[] not null,
  nothing_before timestamptz
);

create or replace function penstock.leases_listed(a_group integer) returns bigint[]
language sql stable set search_path = pg_catalog, pg_temp as
  $$select o.ids from penstock.listed_leases o where o.group_id = a_group$$;

-- How many open leases the next one may name.
create or replace function penstock.most_open_named() returns integer
language sql immutable as $$select 100$$;

-- List the open leases of a locked group without keys, if they are many or one of those that are listed may have expired;
-- whether it did.
create or replace function penstock.list_leases(a_group integer, at timestamptz) returns boolean
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  newest record;
begin
  select l.id, l.open_before into newest from penstock.leases l
   where l.group_id = a_group and l.lanes = 1 and l.lane = 0 order by l.id desc limit 1;
  if newest is null
     or (cardinality(newest.open_before) < penstock.most_open_named()
         and not exists (select 1 from penstock.listed_leases o where o.group_id = a_group and o.nothing_before <= at)) then
    return false;
  end if;
  insert into penstock.listed_leases as o (group_id, ids, nothing_before)
  select a_group, coalesce(array_agg(l.id order by l.id), '{}'), min(l.expires_at)
    from (select * from penstock.leases
           where id = any(newest.open_before || newest.id || penstock.leases_listed(a_group)) offset 0) l
   where l.outcome is null
  on conflict (group_id) do update set ids = excluded.ids, nothing_before = excluded.nothing_before;
  return true;
end $$;

create or replace function penstock.forget_listed_leases() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from penstock.listed_leases where group_id = old.group_id;
  return null;
end $$;
drop trigger if exists forget_listed_leases on penstock.groups;
create trigger forget_listed_leases after delete on penstock.groups
  for each row execute function penstock.forget_listed_leases();

create or replace view penstock.open_lease as
select o.id, g.group_id, o.lane, o.lanes, o.binding, o.token, o.claimed_by, o.claimed_at, o.expires_at, o.attempts,
       o.replay, o.members, o.low, o.high, o.holes, o.offsets, o.fresh, o.total, o.open_before, o.outcome, o.upto, o.digest,
       o.answer, o.ended_at
  from penstock.groups g
 cross join lateral unnest(g.starts) with ordinality as l(start, number)
 cross join lateral (select id, open_before from penstock.leases
                      where group_id = g.group_id and lanes = g.lanes and lane = l.number - 1
                      order by id desc limit 1) n
 cross join lateral (select * from penstock.leases where id = any(n.open_before || n.id || penstock.leases_listed(g.group_id)) offset 0) o
 where o.outcome is null;

create or replace function penstock.keep_returned() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  me   xid := pg_current_xact_id()::xid;
  kept numeric;
begin
  if tg_op <> 'DELETE' then
    perform 1 from (select id, open_before from penstock.leases
                     where group_id = new.group_id and lanes = new.lanes and lane = new.lane order by id desc limit 1) n
     cross join lateral (select * from penstock.leases where id = any (n.open_before || n.id || penstock.leases_listed(new.group_id)) offset 0) l
     where l.outcome is null and l.low < new.high and l.high > new.low;
    if found and exists (select 1 from penstock.returned where id = new.id) then
      raise exception 'penstock: (%, %] cannot wait to be claimed: it is in an open lease', new.low, new.high
        using errcode = 'PS001';
    end if;
  end if;
  if tg_op <> 'INSERT' and exists (select 1 from penstock.groups where group_id = old.group_id) then
    select sum((least(x.high, old.high) - greatest(x.low, old.low)) * old.lanes::numeric / x.lanes) into kept
      from (select r.low, r.high, r.lane, r.lanes from penstock.returned r where r.group_id = old.group_id
            union all
            select l.low, l.high, l.lane, l.lanes
              from (select *, xmin = me as ours from penstock.leases
                     where group_id = old.group_id and lanes = old.lanes and lane = old.lane order by id desc limit 300) l
             where l.ours and l.offsets is null and (l.outcome is null or l.outcome = 'settled')) x
     where x.low < old.high and x.high > old.low and x.lanes >= old.lanes and x.lane * old.lanes / x.lanes = old.lane;
    if coalesce(kept, 0) < old.high - old.low then
      raise exception 'penstock: (%, %] waits to be claimed and cannot be removed', old.low, old.high
        using errcode = 'PS001', hint = 'Claim it, or rewind the group.';
    end if;
  end if;
  return null;
end $$;

create or replace function penstock.born_pending() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  me   constant xid := pg_current_xact_id()::xid;
  held record;
begin
  for held in
    select o.group_id, o.lane, o.lanes, o.low, o.high, o.holes, o.id
      from (select distinct group_id from born) b
      join penstock.groups g on g.group_id = b.group_id
     cross join generate_series(0, g.lanes - 1) as a(lane)
     cross join lateral (select id, open_before from penstock.leases
                          where group_id = g.group_id and lanes = g.lanes and lane = a.lane order by id desc limit 1) n
     cross join lateral (select l.*, l.xmin = me or l.xmax = me as ours from penstock.leases l
                          where l.id = any(n.open_before || n.id || penstock.leases_listed(g.group_id)) offset 0) o
     where o.outcome is null and o.offsets is null and not o.ours
  loop
    perform 1 from born b
      where b.group_id = held.group_id and b.state = 'PENDING' and b."offset" > held.low and b."offset" <= held.high
        and b.bucket * held.lanes / 256 = held.lane and b."offset" <> all (held.holes);
    if found then
      raise exception 'penstock: a delivery cannot be born PENDING: it is in lease %', held.id using errcode = 'PS002';
    end if;
  end loop;
  return null;
end $$;

drop function if exists penstock.claim_look(text, text, timestamptz);
create function penstock.claim_look(a_stream text, a_group text, at timestamptz)
returns table (group_id integer, stream text, group_name text, ordering text, keyed boolean, lanes smallint,
               starts bigint[], floor bigint, matched_before bigint, on_dead text, lease_seconds double precision,
               max_attempts integer, base_seconds double precision, factor double precision,
               cap_seconds double precision, jitter double precision, max_age_seconds double precision,
               max_in_flight integer, rate_per_second double precision,
               rewinds integer, rewound_upto bigint, paused boolean, pause_reason text, created_at timestamptz, bindings text,
               circuit_opened_at timestamptz, delay_seconds double precision, probe_at timestamptz, last_error text,
               error_code text, probe bigint, probe_expires_at timestamptz,
               lane integer, cursor bigint, total bigint, last_lease bigint, last_was_range boolean,
               last_done integer, last_was_clean boolean, open_ids bigint[], expired_ids bigint[], expires_at timestamptz,
               has_returned boolean, returned_low bigint, has_rows boolean, rows_wait boolean, has_dated boolean,
               in_flight bigint, last bigint, bounds bigint[], looked_at timestamptz)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  mine   integer;
  g      record;
  last   bigint;
  bounds bigint[];
  list   record;
  folded boolean;
begin
  perform penstock.settings();
  mine := penstock.take_turn(a_stream, a_group);
  -- From here on every statement finds its events and rows in the order of an index and stops when it has enough. Left to
  -- itself the planner takes a stream for a small part of the log, and reads and sorts all that waits.
  perform set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true);
  select one.*, (select coalesce(json_agg(json_build_object(
                          'id', b.id, 'from_offset', b.from_offset, 'types', b.types, 'type_regex', b.type_regex,
                          'headers', b.headers::text) order by b.from_offset, b.id), '[]')::text
                   from penstock.bindings b where b.group_id = one.group_id) as bindings,
         c.opened_at as circuit_opened_at, c.delay_seconds, c.probe_at, c.last_error, c.error_code, c.probe,
         (select p.expires_at from penstock.leases p where p.id = c.probe and p.outcome is null) as probe_expires_at
    into g from penstock.groups one left join penstock.circuits c on c.group_id = one.group_id
   where one.group_id = mine;
  if not found then
    return;
  end if;
  select case when is_called then last_value else 0 end into last from penstock.events_offset_seq;
  bounds := array(select penstock.announced());
  at := coalesce(at, clock_timestamp());
  folded := penstock.list_leases(mine, at);
  select o.ids, o.nothing_before into list from penstock.listed_leases o where o.group_id = mine;
  return query
  select g.group_id, g.stream, g.group_name, g.ordering, g.keyed, g.lanes, g.starts, g.floor, g.matched_before,
         g.on_dead, g.lease_seconds, g.max_attempts, g.base_seconds, g.factor, g.cap_seconds, g.jitter,
         g.max_age_seconds, g.max_in_flight, g.rate_per_second, g.rewinds, g.rewound_upto, g.paused, g.pause_reason, g.created_at, g.bindings,
         g.circuit_opened_at, g.delay_seconds, g.probe_at, g.last_error, g.error_code, g.probe, g.probe_expires_at,
         l.lane, c.high, c.total, n.id, n.was_range, n.done, n.clean, case when folded then '{}' else coalesce(o.open_ids, '{}') end,
         coalesce(o.expired_ids, '{}'), least(o.expires_at, list.nothing_before),
         exists (select 1 from penstock.returned r where r.group_id = g.group_id),
         (select min(r.low) from penstock.returned r where r.group_id = g.group_id and r.lanes = g.lanes and r.lane = l.lane),
         exists (select 1 from penstock.deliveries d where d.group_id = g.group_id),
         case when g.ordering is null
              then (select true from penstock.deliveries d
                     where d.group_id = g.group_id and d.state = 'PENDING' order by d.available_at limit 1)
              else (select true from penstock.deliveries d
                     where d.group_id = g.group_id and d.in_order and d.state in ('PENDING', 'CLAIMED')
                       and d.bucket between l.lane * 256 / g.lanes and (l.lane + 1) * 256 / g.lanes - 1
                     order by d.bucket, d.ordering_key, d."offset" limit 1) end is not null,  -- each by its own index
         exists (select 1 from penstock.events e where e.stream = a_stream and e.available_at is not null),
         o.in_flight, last, bounds, at
    from generate_series(0, g.lanes - 1) as l(lane)
    left join lateral (select f.high, f.total from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane and f.fresh
                        order by f.high desc limit 1) c on true
    left join lateral (select f.id, f.offsets is null as was_range, f.members - f.released as done,
                              f.published + f.dead = f.members as clean, f.open_before from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane
                        order by f.id desc limit 1) n on true
    left join lateral (select array_agg(f.id order by f.id) as open_ids, min(f.expires_at) as expires_at,
                              array_agg(f.id order by f.id) filter (where f.expires_at <= at) as expired_ids,
                              coalesce(sum(f.members), 0) as in_flight
                         from (select x.id, x.expires_at, x.outcome, x.members from penstock.leases x
                                where x.id = any(n.open_before || n.id
                                                 || case when folded or g.max_in_flight is not null then list.ids end) offset 0) f
                        where f.outcome is null) o on true
   order by l.lane;
end $$;

create or replace function penstock.claim_first(
  a_stream text, a_group text, at timestamptz, a_worker text, seconds double precision, most integer, secret bigint,
  a_run bigint)
returns table (id bigint, token bigint, group_id integer, binding bigint, low bigint, horizon bigint,
               claimed_at timestamptz, expires_at timestamptz, last bigint,
               "offset" bigint, event_id bytea, event_type text, payload bytea, content_type text, headers text,
               metadata text, partition_key text, ordering_key text, available_at bytea, created_at bytea)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set lock_timeout = '30s' set jit = off as $$
#variable_conflict use_column
declare
  mine  integer;
  g     record;
  lease bigint;
  n     integer;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  mine := penstock.take_turn(a_stream, a_group);
  select case when is_called then last_value else 0 end into last from penstock.events_offset_seq;
  horizon := least(last, (select min(penstock.unfolded(bound, last)) from penstock.announced() bound));
  at := coalesce(at, clock_timestamp());
  -- The newest lease names those that were open before it; the one that reaches farthest has the cursor.
  select one.group_id, one.lease_seconds, one.starts, one.ordering is not null or one.keyed as exclusive, c.high, c.total,
         b.id as binding, coalesce(o.ids, '{}') as open_ids, coalesce(o.expired, false) as expired,
         cardinality(n.ids) > penstock.most_open_named() as many
    into g
    from penstock.groups one join penstock.bindings b on b.group_id = one.group_id
    left join lateral (select f.high, f.total from penstock.leases f
                        where f.group_id = one.group_id and f.lanes = 1 and f.lane = 0 and f.fresh
                        order by f.high desc limit 1) c on true
    left join lateral (select f.open_before || f.id as ids from penstock.leases f
                        where f.group_id = one.group_id and f.lanes = 1 and f.lane = 0
                        order by f.id desc limit 1) n on true
    left join lateral (select array_agg(x.id order by x.id) as ids, bool_or(x.expires_at <= at) as expired
                         from penstock.leases x where x.id = any(n.ids) and x.outcome is null) o on true
   where one.group_id = mine and one.lanes = 1 and not one.paused
     and one.max_in_flight is null and one.rate_per_second is null
     and b.type_regex is null and b.headers is null
     and not exists (select 1 from penstock.bindings two where two.group_id = one.group_id and two.id <> b.id)
     and not exists (select 1 from penstock.circuits c where c.group_id = one.group_id)
     and not exists (select 1 from penstock.listed_leases l where l.group_id = one.group_id and l.nothing_before <= at)
     and not exists (select 1 from penstock.returned r where r.group_id = one.group_id)
     and not exists (select 1 from penstock.deliveries d where d.group_id = one.group_id)
     and not exists (select 1 from penstock.events e where e.stream = a_stream and e.available_at is not null);
  if g is null or g.expired or g.many or (g.exclusive and g.open_ids <> '{}') then
    return;
  end if;
  low := coalesce(g.high, g.starts[1]);
  lease := nextval('penstock.leases_id_seq');
  return query
  select lease, (lease << 20) | secret, g.group_id, g.binding, low, horizon, at,
         at + make_interval(secs => coalesce(seconds, g.lease_seconds)), last,
         e."offset", uuid_send(e.event_id), e.event_type, e.payload, e.content_type, e.headers::text, e.metadata::text,
         e.partition_key, e.ordering_key, timestamptz_send(e.available_at), timestamptz_send(e.created_at)
    from penstock.events e
   where e.stream = a_stream and e."offset" > low and e."offset" <= horizon order by e."offset" limit most;
  get diagnostics n = row_count;
  if n = 0 then  -- not worth waiting for the disk
    perform set_config('synchronous_commit', 'off', true);
    return next;
    return;
  end if;
  insert into penstock.leases (id, group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at, attempts,
                               replay, members, low, high, fresh, total, open_before, run)
  overriding system value
  values (lease, g.group_id, 0, 1, g.binding, (lease << 20) | secret, a_worker, at,
          at + make_interval(secs => coalesce(seconds, g.lease_seconds)), 1, 0, n, low,
          case when n < most then horizon
               else (select e."offset" from penstock.events e
                      where e.stream = a_stream and e."offset" > low and e."offset" <= horizon
                      order by e."offset" offset most - 1 limit 1) end,
          true, coalesce(g.total, 0) + n, g.open_ids, a_run);
end $$;

-- Of the streams of these types: where their first job to claim is, and when another will be due. A stream without its
-- group has never been claimed from. A dated or cancelled job at its head does not make it older than it is. Of very many due
-- rows, and such jobs, only the first thousand are looked at. Two hundred types have two thousand streams, most of them without a
-- job: whoever asks again names those that he knows, and up to where the log was searched for others. The first row says
-- how far that is now, unless the transaction sees the log as it was before.
drop function penstock.jobs_due(text[], timestamptz);
create function penstock.jobs_due(known text[], a_queue text, types text[], since bigint, at timestamptz)
returns table (stream text, has_group boolean, paused boolean, "offset" bigint, later_at timestamptz, horizon bigint,
               looked_at timestamptz)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  prefix constant text := 'jobs:' || a_queue || ':';
  few    constant integer := 10 * cardinality(types);  -- new events are looked through if they are no more than streams
  last   bigint;
  fresh  text[];
  seen   integer;
begin
  perform penstock.settings();
  select case when is_called then last_value else 0 end into last from penstock.events_offset_seq;
  horizon := least(last, (select min(penstock.unfolded(bound, last)) from penstock.announced() bound));
  at := coalesce(at, clock_timestamp());
  if since <= horizon and current_setting('transaction_isolation') = 'read committed' then
    select array_agg(distinct n.stream) filter (where starts_with(n.stream, prefix)
                                                  and substr(n.stream, length(prefix) + 3) = any(types)
                                                  and n.stream <> all(known)), count(*) into fresh, seen
      from (select e.stream from penstock.events e where e."offset" > since and e."offset" <= horizon
             order by e."offset" limit few + 1) n;
  end if;
  if seen is null or seen > few then
    fresh := array(select s.stream from (select prefix || p || ':' || t as stream
                                           from unnest(types) as t, generate_series(0, 9) as p offset 0) s
                    where s.stream <> all(known) and exists (select 1 from penstock.events e where e.stream = s.stream));
  end if;
  fresh := coalesce(fresh, '{}');
  looked_at := at;
  if current_setting('transaction_isolation') <> 'read committed' then
    horizon := null;
  end if;
  return next;
  return query
  select s.stream, g.group_id is not null as has_group, coalesce(g.paused, false) as paused,
         least(case when n.passed then coalesce(d."offset", n."offset") else n."offset" end, r."offset", b."offset"),
         least(r.later_at, b.later_at), horizon, at
    from unnest(known || fresh) as s(stream)
    left join penstock.groups g on g.stream = s.stream and g.group_name = 'workers'
    left join lateral (select f.high from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = 1 and f.lane = 0 and f.fresh
                        order by f.high desc limit 1) c on true
    left join lateral (select e."offset", coalesce(e.available_at > at, false) or exists (
                                select 1 from penstock.deliveries x
                                 where x.group_id = g.group_id and x."offset" = e."offset") as passed
                         from penstock.events e
                        where e.stream = s.stream and e."offset" > coalesce(c.high, g.starts[1], 0)
                        order by e."offset" limit 1) n on true
    left join lateral (select x."offset"
                         from (select e."offset", e.available_at from penstock.events e
                                where n.passed and e.stream = s.stream and e."offset" > n."offset"
                                order by e."offset" limit 1000) x
                        where (x.available_at is null or x.available_at <= at) and not exists (
                                select 1 from penstock.deliveries y
                                 where y.group_id = g.group_id and y."offset" = x."offset")
                        order by x."offset" limit 1) d on true
    left join lateral (select min(d."offset") as "offset",
                              (select l.available_at from penstock.deliveries l
                                where l.group_id = g.group_id and l.state = 'PENDING' and l.available_at > at
                                order by l.available_at limit 1) as later_at
                         from (select "offset" from penstock.deliveries
                                where group_id = g.group_id and state = 'PENDING' and available_at <= at
                                order by available_at limit 1000) d) r on true
    left join lateral (select coalesce((select e."offset"
                                          from (select e."offset" from penstock.events e
                                                 where e.stream = s.stream and e."offset" > x.low
                                                 order by e."offset" limit 1000) e
                                         where not exists (select 1 from penstock.deliveries y
                                                            where y.group_id = g.group_id and y."offset" = e."offset")
                                         order by e."offset" limit 1), x.low + 1) as "offset", x.later_at
                         from (select min(low) filter (where available_at <= at) as low,
                                      min(available_at) filter (where available_at > at) as later_at
                                 from penstock.returned where group_id = g.group_id) x) b on true
   where n."offset" is not null or r."offset" is not null or b."offset" is not null or r.later_at is not null
      or b.later_at is not null or s.stream = any(fresh);
end $$;

-- Look for the most urgent job and claim from its stream, where that is simple, in one statement. Each row has what the look
-- found, too: streams that were not known, how far the log was searched, when another job will be due. Without a lease its
-- stream needs the full claim; without a stream nothing is due.
create or replace function penstock.claim_first_job(
  known text[], a_queue text, types text[], since bigint, at timestamptz, a_worker text, seconds double precision,
  most integer, secret bigint, a_run bigint)
returns table (stream text, fresh text[], searched bigint, later_at timestamptz, looked_at timestamptz,
               id bigint, token bigint, group_id integer, binding bigint, low bigint, horizon bigint,
               claimed_at timestamptz, expires_at timestamptz, last bigint,
               "offset" bigint, event_id bytea, event_type text, payload bytea, content_type text, headers text,
               metadata text, partition_key text, ordering_key text, available_at bytea, created_at bytea)
language plpgsql as $$
#variable_conflict use_column
declare
  few  constant integer := 100;
  last bigint;
begin
  -- Mostly one stream is known and no other has had a job since: then it is the most urgent one.
  if cardinality(known) = 1 and since is not null then
    perform penstock.settings();
    select case when is_called then last_value else 0 end into last from penstock.events_offset_seq;
    searched := least(last, (select min(penstock.unfolded(bound, last)) from penstock.announced() bound));
    if since <= searched and current_setting('transaction_isolation') = 'read committed'
       and (select count(*) <= few and coalesce(bool_and(n.stream = known[1]), true)
              from (select e.stream from penstock.events e where e."offset" > since and e."offset" <= searched
                     order by e."offset" limit few + 1) n) then
      return query select case when c.id is not null then known[1] end, null::text[], searched, null::timestamptz,
                          coalesce(at, clock_timestamp()), c.*
                     from penstock.claim_first(known[1], 'workers', at, a_worker, seconds, most, secret, a_run) c;
      if found then
        return;
      end if;
    end if;
  end if;
  select (array_agg(d.stream order by substr(d.stream, length(a_queue) + 7, 1) desc, d."offset")
            filter (where d."offset" is not null and not d.paused))[1],
         array_agg(d.stream) filter (where d.stream <> all(known)), max(d.horizon), min(d.later_at), max(d.looked_at)
    into stream, fresh, searched, later_at, looked_at
    from penstock.jobs_due(known, a_queue, types, since, at) d;
  if stream is not null then
    return query select stream, fresh, searched, later_at, looked_at, c.*
                   from penstock.claim_first(stream, 'workers', at, a_worker, seconds, most, secret, a_run) c;
  end if;
  if stream is null or not found then
    return next;
  end if;
end $$;

alter function penstock.rights() rename to rights_until_0021;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0021() r
  union all
  values ('worker', 'insert, update', 'penstock.listed_leases')
$$;
select penstock.regrant();
