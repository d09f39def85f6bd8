-- What is recorded besides events and deliveries: runs, counters of a lease, kinds of errors, circuits, locks of groups.

-- A lease counts its outcomes in the same UPDATE that ends it. What an Unavailable target or an expiry said about a whole
-- range stands here, too, so that nothing has to be written per event.
alter table penstock.leases add column if not exists published integer;
alter table penstock.leases add column if not exists failed integer;
alter table penstock.leases add column if not exists dead integer;
alter table penstock.leases add column if not exists released integer;
alter table penstock.leases add column if not exists run bigint;
alter table penstock.leases add column if not exists last_error text;
alter table penstock.leases add column if not exists error_code text;

-- A part of a lost lease: rows with the same number are claimed together, and with nobody else.
alter table penstock.deliveries add column if not exists suspect_part bigint;
alter table penstock.deliveries add column if not exists error_type text;
alter table penstock.deliveries add column if not exists fingerprint text;
-- Attempts of the lives before this one.
alter table penstock.deliveries add column if not exists earlier_attempts integer not null default 0;

alter table penstock.attempt_log add column if not exists error_type text;
alter table penstock.attempt_log add column if not exists fingerprint text;
alter table penstock.attempt_log add column if not exists by text;

alter table penstock.returned add column if not exists error_code text;
alter table penstock.returned add column if not exists returned_at timestamptz not null default clock_timestamp();

-- A kind of error: its traceback is kept once, however often it happens.
create table if not exists penstock.fingerprints (
  fingerprint text primary key,
  error_code  text,
  error_type  text,
  message     text,
  traceback   text,
  first_at    timestamptz not null default clock_timestamp()
);

-- A run of an engine. Its counts are sums over its leases.
create table if not exists penstock.runs (
  id           bigint generated always as identity primary key,
  name         text not null,
  app          text,
  engine       text not null,
  version      text not null,
  host         text not null,
  pid          integer not null,
  groups       text[] not null default '{}',
  started_at   timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  wanted       text not null default 'run' check (wanted in ('run', 'quiet', 'stop')),
  ended_at     timestamptz,
  outcome      text
);
create index if not exists runs_live on penstock.runs (heartbeat_at) where ended_at is null;

-- The circuit of a group whose target was unavailable: one for all processes that work for it.
create table if not exists penstock.circuits (
  group_id      integer primary key,
  opened_at     timestamptz not null,
  delay_seconds double precision not null,
  probe_at      timestamptz not null,
  last_error    text,
  error_code    text
);

-- Claimers and operators of a group take turns by locking its row. Roles without rights on the log cannot touch it, which
-- cannot be said of an advisory lock.
create table if not exists penstock.group_locks (
  group_id integer primary key
);
insert into penstock.group_locks (group_id) select group_id from penstock.groups on conflict do nothing;
create or replace function penstock.add_group_lock() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into penstock.group_locks (group_id) values (new.group_id) on conflict do nothing;
  return null;
end $$;
drop trigger if exists add_group_lock on penstock.groups;
create trigger add_group_lock after insert on penstock.groups for each row execute function penstock.add_group_lock();
create or replace function penstock.remove_group_lock() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from penstock.group_locks where group_id = old.group_id;
  delete from penstock.circuits where group_id = old.group_id;
  return null;
end $$;
drop trigger if exists remove_group_lock on penstock.groups;
create trigger remove_group_lock after delete on penstock.groups for each row
  execute function penstock.remove_group_lock();
