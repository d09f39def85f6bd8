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
                                           'penstock.schedules'),
         ('producer', 'select', 'penstock.job_types'),
         ('producer', 'execute',
          'function penstock.take_unique(text, text, text, uuid, double precision, timestamptz, boolean)')
$$;
select penstock.regrant();
