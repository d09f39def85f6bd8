-- What is recorded besides events and deliveries: runs, counters of a lease, kinds of errors, circuits.

-- A lease counts its outcomes in the same UPDATE that ends it. What an Unavailable target or an expiry said about a whole
-- range stands here, too, so that nothing has to be written per event.
alter table penstock_leases add column published integer;
alter table penstock_leases add column failed integer;
alter table penstock_leases add column dead integer;
alter table penstock_leases add column released integer;
alter table penstock_leases add column run integer;
alter table penstock_leases add column last_error text;
alter table penstock_leases add column error_code text;

-- A part of a lost lease: rows with the same number are claimed together, and with nobody else.
alter table penstock_deliveries add column suspect_part integer;
alter table penstock_deliveries add column error_type text;
alter table penstock_deliveries add column fingerprint text;
-- Attempts of the lives before this one.
alter table penstock_deliveries add column earlier_attempts integer not null default 0;

alter table penstock_attempt_log add column error_type text;
alter table penstock_attempt_log add column fingerprint text;
alter table penstock_attempt_log add column "by" text;

alter table penstock_returned add column error_code text;
alter table penstock_returned add column returned_at integer;

-- A kind of error: its traceback is kept once, however often it happens.
create table if not exists penstock_fingerprints (
  fingerprint text primary key,
  error_code  text,
  error_type  text,
  message     text,
  traceback   text,
  first_at    integer not null
) without rowid;

-- A run of an engine. Its counts are sums over its leases.
create table if not exists penstock_runs (
  id           integer primary key autoincrement,
  name         text not null,
  app          text,
  engine       text not null,
  version      text not null,
  host         text not null,
  pid          integer not null,
  "groups"     text not null default '[]',
  started_at   integer not null,
  heartbeat_at integer not null,
  wanted       text not null default 'run' check (wanted in ('run', 'quiet', 'stop')),
  ended_at     integer,
  outcome      text
);

-- The circuit of a group whose target was unavailable: one for all processes that work for it.
create table if not exists penstock_circuits (
  group_id      integer primary key,
  opened_at     integer not null,
  delay_seconds real not null,
  probe_at      integer not null,
  last_error    text,
  error_code    text
);
create trigger if not exists penstock_circuits_group after delete on penstock_groups
begin
  delete from penstock_circuits where group_id = old.group_id;
end;
