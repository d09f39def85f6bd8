-- Jobs: the events of streams `jobs:<queue>:<priority>:<type>`, each with the one group `workers`.

-- When the holder of a lease last said that it is alive.
alter table penstock_leases add column heartbeat_at integer;

-- What a job says of itself: how far it is, and what it returned.
create table if not exists penstock_job_notes (
  "offset"   integer primary key,
  progress   real check (progress between 0 and 1),
  message    text,
  result     text,
  updated_at integer not null
);

-- Running jobs that somebody wants to end: their workers are told with the next heartbeat.
create table if not exists penstock_job_cancels (
  "offset" integer primary key,
  by       text not null,
  asked_at integer not null
);

-- Who has a unique key. A row counts while its job is unfinished, and until its time: a success writes nothing here.
create table if not exists penstock_job_unique (
  queue      text not null,
  job_type   text not null,
  unique_key text not null,
  event_id   text not null,
  until_at   integer,
  primary key (queue, job_type, unique_key)
) without rowid;
