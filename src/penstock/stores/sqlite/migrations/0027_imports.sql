-- Imports from other systems: how far each has come, so that it can be stopped anywhere and started again.

-- `read_upto` is where the source was read up to, in the source's own words, and `counts` what was taken so far; both are
-- JSON, and change in the transaction that stores the events.
create table if not exists penstock_imports (
  id         integer primary key,
  system     text not null,
  source     text not null,
  options    text not null,
  read_upto  text,
  counts     text not null,
  state      text not null check (state in ('copying', 'settling', 'done')),
  by         text not null,
  began_at   integer not null,
  ended_at   integer,
  unique (system, source)
);

-- The groups that an import has made: they are paused until their states are settled.
create table if not exists penstock_import_groups (
  group_id     integer primary key,
  import_id    integer not null,
  settled_upto integer not null,
  done         integer not null default false
);

-- Events that were finished in the source, as ranges (low, high] in which every offset is one of them. They go when their
-- group is settled.
create table if not exists penstock_import_ranges (
  group_id integer not null,
  low      integer not null,
  high     integer not null,
  primary key (group_id, low),
  check (low < high)
) without rowid;
