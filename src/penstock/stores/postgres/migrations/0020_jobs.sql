-- Jobs: the events of streams `jobs:<queue>:<priority>:<type>`, each with the one group `workers`.

-- When the holder of a lease last said that it is alive.
alter table penstock.leases add column if not exists heartbeat_at timestamptz;

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
  values ('worker', 'insert, update, delete', 'penstock.job_notes, penstock.job_cancels'),
         ('producer', 'execute',
          'function penstock.take_unique(text, text, text, uuid, double precision, timestamptz, boolean)')
$$;
select penstock.regrant();
