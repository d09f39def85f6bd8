-- Retention policies, archives, and erased payloads.

-- How long the events of a stream stay, in seconds. `swept`: up to here only events are left that something needs, or needed
-- when they were looked at; `passed_at`: when these were last looked at again. A round with nothing to do finds that out
-- from `next_at` alone.
create table if not exists penstock_retention (
  stream    text primary key check (stream not glob 'jobs:*'),
  keep      real not null check (keep >= 0),
  keep_dead real check (keep_dead > 0),
  archive   text,
  swept     integer not null default 0,
  passed_at integer,
  next_at   integer not null,
  by        text not null,
  set_at    integer not null
);
create index if not exists penstock_retention_due on penstock_retention (next_at);

-- Copies of the events of a stream in (low, high], as Parquet files below `place`. Those of one place follow each other:
-- together they hold every event above `complete_from`.
create table if not exists penstock_archives (
  id            integer primary key autoincrement,
  stream        text not null,
  place         text not null,
  low           integer not null,
  high          integer not null,
  complete_from integer not null,
  state         text not null check (state in ('writing', 'done')),
  folder        text,
  version       integer not null default 1,
  events        integer not null default 0,
  bytes         integer not null default 0,
  by            text not null,
  began_at      integer not null,
  ended_at      integer,
  check (low <= high)
);
create unique index if not exists penstock_archives_writing on penstock_archives (stream, place) where state = 'writing';
create index if not exists penstock_archives_stream on penstock_archives (stream, high);
create table if not exists penstock_archive_files (
  archive_id    integer not null,
  path          text not null,
  low           integer not null,
  high          integer not null,
  events        integer not null,
  bytes         integer not null,
  footer_sha256 text not null,
  first_at      integer not null,
  last_at       integer not null,
  primary key (archive_id, path)
);
-- Files that were replaced, and are to be deleted.
create table if not exists penstock_archive_waste (
  archive_id integer not null,
  path       text not null,
  primary key (archive_id, path)
);

-- Events that were restored stay at least until then.
create table if not exists penstock_holds (
  stream   text not null,
  low      integer not null,
  high     integer not null,
  until_at integer not null,
  primary key (stream, low, high)
);

-- How often something of a stream was pruned: a restore sees whether that happened while it was at work.
alter table penstock_pruned add column changes integer not null default 0;
create trigger if not exists penstock_pruned_changes after update of upto on penstock_pruned
begin
  update penstock_pruned set changes = old.changes + 1 where stream = new.stream;
end;

-- Restore writes offsets, and erase rewrites an event; both say so with a maintenance row in the same transaction.
drop trigger if exists penstock_events_number;
create trigger penstock_events_number before insert on penstock_events
when new."offset" <> -1 and not exists (select 1 from penstock_maintenance)
begin
  select raise(abort, 'penstock: the offset of an event is given by the database');
end;
drop trigger if exists penstock_events_update;
create trigger penstock_events_update before update on penstock_events
when not exists (select 1 from penstock_maintenance)
begin
  select raise(abort, 'penstock: UPDATE of events is refused: it is append-only');
end;
