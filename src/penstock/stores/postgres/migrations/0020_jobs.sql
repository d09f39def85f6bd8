-- Jobs: the events of streams `jobs:<queue>:<priority>:<type>`, each with the one group `workers`.

-- When the holder of a lease last said that it is alive.
alter table penstock.leases add column if not exists heartbeat_at timestamptz;

-- A lease that a settle opened for one event of another lease, which goes on: the same attempt, kept.
alter table penstock.leases add column if not exists kept_from bigint;
alter table penstock.leases add column if not exists kept_at timestamptz;
create index if not exists leases_kept on penstock.leases (kept_from) where kept_from is not null;

create or replace function penstock.kept_for_good() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'penstock: what lease % was kept from cannot change', old.id using errcode = 'PS001';
end $$;
drop trigger if exists kept_for_good on penstock.leases;
create trigger kept_for_good before update on penstock.leases for each row
  when ((old.kept_from, old.kept_at) is distinct from (new.kept_from, new.kept_at))
  execute function penstock.kept_for_good();
alter table penstock.leases enable always trigger kept_for_good;

-- Who holds a delivery, and when it ended, changes with its state only; but a row that goes on changes its lease.
create or replace function penstock.unmoved() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if new.state = 'CLAIMED' and (old.claimed_at, old.claimed_by) is not distinct from (new.claimed_at, new.claimed_by)
     and exists (select 1 from penstock.leases k
                  where k.id = new.lease and k.kept_from = old.lease and k.outcome is null
                    and k.offsets = array[new."offset"]) then
    return new;
  end if;
  raise exception 'penstock: who holds a delivery and when it ended change with its state only' using errcode = 'PS001';
end $$;

-- How often an event was claimed in all its lives; what was kept is the same attempt.
create or replace function penstock.claims_of(a_group integer, an_offset bigint, a_bucket integer) returns integer
language sql stable set search_path = pg_catalog, pg_temp as $$
  select (select count(*)::int from penstock.leases l
           where l.offsets is null and l.group_id + 0 = a_group and int8range(l.low, l.high, '(]') @> an_offset
             and a_bucket * l.lanes / 256 = l.lane and an_offset <> all (l.holes) and l.kept_from is null)
       + (select count(*)::int from penstock.attempt_log a
           where a.group_id = a_group and a."offset" = an_offset and a.claimed_at is not null
             and not exists (select 1 from penstock.leases l where l.id = a.lease and l.offsets is null))
$$;

-- One row per transition. Claims and successes of ranges follow from the leases; what has or had a row of its own has
-- lines in the attempt log. First what the lines say …
create or replace view penstock.history as
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, a.ended_at as at, a.outcome,
       case when a.outcome = 'published' then 'PUBLISHED' when a.outcome in ('dead', 'killed') then 'DEAD' else 'PENDING' end as state,
       a.attempt, a.failures, a.replays, coalesce(a.by, a.claimed_by) as by, a.claimed_by, a.claimed_at, a.ended_at,
       a.lease, a.error, a.error_code, a.error_type, a.fingerprint, g.group_id, 2 as step, a.id as line
  from penstock.events e
  join penstock.groups g on g.stream = e.stream
  join penstock.attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
-- … and the claim that each of them ended, if one did …
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, coalesce(k.kept_at, a.claimed_at),
       case when k.id is null then 'claimed' else 'kept' end, 'CLAIMED', a.attempt,
       a.failures - case when a.outcome in ('failed', 'dead') then 1 else 0 end, a.replays, a.claimed_by, a.claimed_by,
       a.claimed_at, null, a.lease, null, null, null, null, g.group_id, 1, a.id
  from penstock.events e
  join penstock.groups g on g.stream = e.stream
  join penstock.attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
  left join penstock.leases k on k.id = a.lease and k.kept_from is not null and k.offsets is null
 where a.claimed_at is not null
-- … or has not ended yet
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, d.claimed_at, 'claimed', 'CLAIMED', d.attempts,
       d.failures, d.replays, d.claimed_by, d.claimed_by, d.claimed_at, null, d.lease, null, null, null, null, d.group_id,
       1, null
  from penstock.deliveries d where d.state = 'CLAIMED'
-- claimed as part of a range, or kept as the rest of one
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type,
       coalesce(l.kept_at, l.claimed_at), case when l.kept_from is null then 'claimed' else 'kept' end, 'CLAIMED', l.attempts, 0,
       l.replay, l.claimed_by, l.claimed_by, l.claimed_at, null, l.id, null, null, null, null, g.group_id, 1, null
  from penstock.events e
  join penstock.leases l on l.low < e."offset" and l.high >= e."offset" and int8range(l.low, l.high, '(]') @> e."offset"
                        and l.offsets is null
  join penstock.groups g on g.group_id = l.group_id and g.stream = e.stream
  join penstock.bindings b on b.id = l.binding
 where coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane and e."offset" <> all (l.holes)
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = l.group_id and a."offset" = e."offset" and a.lease = l.id)
-- and what became of it there
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, l.ended_at,
       case when l.outcome = 'settled' and l.upto >= e."offset" then 'published'
            when l.outcome = 'expired' then 'expired' else 'released' end,
       case when l.outcome = 'settled' and l.upto >= e."offset" then 'PUBLISHED' else 'PENDING' end, l.attempts, 0,
       l.replay, l.claimed_by, l.claimed_by, l.claimed_at, l.ended_at, l.id,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.last_error end,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.error_code end,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.error_type end,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.fingerprint end, g.group_id, 2, null
  from penstock.events e
  join penstock.leases l on l.low < e."offset" and l.high >= e."offset" and int8range(l.low, l.high, '(]') @> e."offset"
                        and l.offsets is null
  join penstock.groups g on g.group_id = l.group_id and g.stream = e.stream
  join penstock.bindings b on b.id = l.binding
 where l.outcome is not null
   and not exists (select 1 from penstock.leases k where k.kept_from = l.id and k.high = e."offset")
   and coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane and e."offset" <> all (l.holes)
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = l.group_id and a."offset" = e."offset" and a.lease = l.id)
-- what operators did to ranges
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, x.at, x.action, 'PENDING', 0, 0, x.replay, x.by, null,
       null, x.at, null, null, null, null, null, g.group_id, 3, null
  from penstock.events e
  join penstock.groups g on g.stream = e.stream
  join penstock.range_actions x on x.group_id = g.group_id and x.low < e."offset" and x.high >= e."offset"
  join penstock.bindings b on b.id = x.binding
 where coalesce(e.bucket, mod(e."offset", 256)) * x.lanes / 256 = x.lane
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = x.group_id and a."offset" = e."offset" and a.range_action = x.replay);

-- How much of a group may be in work at once, and how many events a second it may claim, over all workers.
alter table penstock.groups add column if not exists max_in_flight integer check (max_in_flight > 0);
alter table penstock.groups add column if not exists rate_per_second double precision check (rate_per_second > 0);

-- What is left of a rate: tokens that grow with time. The name is that of a group, or of a job type.
create table if not exists penstock.rates (
  name   text primary key,
  tokens double precision not null,
  at     timestamptz not null
);

-- Claims look at limits, too; a claim in one statement is for groups without any.
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
  return query
  select g.group_id, g.stream, g.group_name, g.ordering, g.keyed, g.lanes, g.starts, g.floor, g.matched_before,
         g.on_dead, g.lease_seconds, g.max_attempts, g.base_seconds, g.factor, g.cap_seconds, g.jitter,
         g.max_age_seconds, g.max_in_flight, g.rate_per_second, g.rewinds, g.rewound_upto, g.paused, g.pause_reason, g.created_at, g.bindings,
         g.circuit_opened_at, g.delay_seconds, g.probe_at, g.last_error, g.error_code, g.probe, g.probe_expires_at,
         l.lane, c.high, c.total, n.id, n.was_range, n.done, n.clean, coalesce(o.open_ids, '{}'), coalesce(o.expired_ids, '{}'),
         o.expires_at,
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
                                where x.id = any(n.open_before || n.id) offset 0) f where f.outcome is null) o on true
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
         b.id as binding, coalesce(o.ids, '{}') as open_ids, coalesce(o.expired, false) as expired
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
     and not exists (select 1 from penstock.returned r where r.group_id = one.group_id)
     and not exists (select 1 from penstock.deliveries d where d.group_id = one.group_id)
     and not exists (select 1 from penstock.events e where e.stream = a_stream and e.available_at is not null);
  if g is null or g.expired or (g.exclusive and g.open_ids <> '{}') then
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


-- What an app has declared of a job type: the schema of its payloads, and the policy of its groups.
create table if not exists penstock.job_types (
  queue           text not null,
  job_type        text not null,
  schema          text,
  lease_seconds   double precision not null,
  max_attempts    integer not null,
  base_seconds    double precision not null,
  factor          double precision not null,
  cap_seconds     double precision not null,
  jitter          double precision not null,
  max_age_seconds double precision,
  max_in_flight   integer,
  rate_per_second double precision,
  declared_at     timestamptz not null,
  primary key (queue, job_type)
);

-- Jobs that are submitted again and again; `next_at` is when the next run is due.
create table if not exists penstock.schedules (
  name         text primary key,
  cron         text not null,
  tz           text not null,
  job_type     text not null,
  queue        text not null,
  priority     integer not null,
  payload      text not null,
  max_attempts integer,
  suspended    boolean not null default false,
  created_at   timestamptz not null,
  next_at      timestamptz not null,
  last_at      timestamptz,
  last_job     uuid
);

-- Of these streams: where their first job to claim is, and when another will be due. A stream without its group has never
-- been claimed from. A dated job at its head does not make it older than it is. Of very many due rows, and dated jobs, only
-- the first thousand are looked at.
create or replace function penstock.jobs_due(streams text[], at timestamptz)
returns table (stream text, has_group boolean, paused boolean, "offset" bigint, later_at timestamptz)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
begin
  perform penstock.settings();
  at := coalesce(at, clock_timestamp());
  return query
  select s.stream, g.group_id is not null as has_group, coalesce(g.paused, false) as paused,
         least(case when n.available_at > at then coalesce(d."offset", n."offset") else n."offset" end, r."offset", b."offset"),
         least(r.later_at, b.later_at)
    from unnest(streams) as s(stream)
    left join penstock.groups g on g.stream = s.stream and g.group_name = 'workers'
    left join lateral (select f.high from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = 1 and f.lane = 0 and f.fresh
                        order by f.high desc limit 1) c on true
    left join lateral (select e."offset", e.available_at from penstock.events e
                        where e.stream = s.stream and e."offset" > coalesce(c.high, g.starts[1], 0)
                        order by e."offset" limit 1) n on true
    left join lateral (select min(x."offset") as "offset"
                         from (select e."offset", e.available_at from penstock.events e
                                where n.available_at > at and e.stream = s.stream and e."offset" > n."offset"
                                order by e."offset" limit 1000) x
                        where x.available_at is null or x.available_at <= at) d on true
    left join lateral (select min(d."offset") as "offset",
                              (select l.available_at from penstock.deliveries l
                                where l.group_id = g.group_id and l.state = 'PENDING' and l.available_at > at
                                order by l.available_at limit 1) as later_at
                         from (select "offset" from penstock.deliveries
                                where group_id = g.group_id and state = 'PENDING' and available_at <= at
                                order by available_at limit 1000) d) r on true
    left join lateral (select min(low) filter (where available_at <= at) + 1 as "offset",
                              min(available_at) filter (where available_at > at) as later_at
                         from penstock.returned where group_id = g.group_id) b on true
   where n."offset" is not null or r."offset" is not null or b."offset" is not null or r.later_at is not null
      or b.later_at is not null;
end $$;

-- What a job says of itself: how far it is, and what it returned.
create table if not exists penstock.job_notes (
  "offset"   bigint primary key,
  progress   double precision check (progress between 0 and 1),
  message    text,
  result     text,
  updated_at timestamptz not null
);

-- Running jobs that somebody wants to end: their workers are told with the next heartbeat.
create table if not exists penstock.job_cancels (
  "offset" bigint primary key,
  by       text not null,
  asked_at timestamptz not null
);

-- Who has a unique key. A row counts while its job is unfinished, and until its time: a success writes nothing here.
create table if not exists penstock.job_unique (
  queue      text not null,
  job_type   text not null,
  unique_key text not null,
  event_id   uuid not null,
  until_at   timestamptz,
  primary key (queue, job_type, unique_key)
);

-- Whether a job is done, dead, or gone.
create or replace function penstock.job_finished(an_event uuid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  job record;
begin
  select e.stream, e."offset" into job from penstock.events e where e.event_id = an_event;
  return not found or exists (
    select 1 from penstock.delivery v
     where v.stream = job.stream and v.group_name = 'workers' and v."offset" = job."offset" and v.state in ('PUBLISHED', 'DEAD'));
end $$;

-- Take a unique key for a job; says whose it is now. (The owner's rights: a producer reads neither jobs nor keys.)
create or replace function penstock.take_unique(
  a_queue text, a_type text, a_key text, an_event uuid, seconds double precision, at timestamptz, always boolean) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  holder uuid;
begin
  at := coalesce(at, clock_timestamp());
  insert into penstock.job_unique as u (queue, job_type, unique_key, event_id, until_at)
  values (a_queue, a_type, a_key, an_event, at + make_interval(secs => seconds))
  on conflict (queue, job_type, unique_key) do update set event_id = excluded.event_id, until_at = excluded.until_at
   where always or (coalesce(u.until_at <= at, true) and penstock.job_finished(u.event_id))
  returning u.event_id into holder;
  if holder is null then
    select u.event_id into holder from penstock.job_unique u
     where u.queue = a_queue and u.job_type = a_type and u.unique_key = a_key;
  end if;
  return holder;
end $$;
revoke execute on function penstock.take_unique(text, text, text, uuid, double precision, timestamptz, boolean) from public;

alter function penstock.rights() rename to rights_until_0019;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0019() r
  union all
  values ('worker', 'insert, update, delete', 'penstock.job_notes, penstock.job_cancels, penstock.job_types, '
                                           'penstock.schedules, penstock.rates'),
         ('producer', 'select', 'penstock.job_types'),
         ('producer', 'execute',
          'function penstock.take_unique(text, text, text, uuid, double precision, timestamptz, boolean)')
$$;
select penstock.regrant();
