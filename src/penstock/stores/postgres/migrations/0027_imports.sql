-- Imports from other systems: how far each has come, so that it can be stopped anywhere and started again.

-- `read_upto` is where the source was read up to, in the source's own words, and `counts` what was taken so far; both are
-- JSON, and change in the transaction that stores the events.
create table if not exists penstock.imports (
  id         bigint generated always as identity primary key,
  system     text not null,
  source     text not null,
  options    text not null,
  read_upto  text,
  counts     text not null,
  state      text not null check (state in ('copying', 'settling', 'done')),
  by         text not null,
  began_at   timestamptz not null,
  ended_at   timestamptz,
  unique (system, source)
);

-- The groups that an import has made: they are paused until their states are settled.
create table if not exists penstock.import_groups (
  group_id     integer primary key references penstock.groups (group_id) on delete cascade,
  import_id    bigint not null,
  settled_upto bigint not null,
  done         boolean not null default false
);

-- Events that were finished in the source, as ranges (low, high] in which every offset is one of them. They go when their
-- group is settled.
create table if not exists penstock.import_ranges (
  group_id integer not null references penstock.groups (group_id) on delete cascade,
  low      bigint not null,
  high     bigint not null,
  primary key (group_id, low),
  check (low < high)
);

alter function penstock.rights() rename to rights_until_0026;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0026() r
  union all
  values ('worker', 'insert, update, delete', 'penstock.imports, penstock.import_groups, penstock.import_ranges')
$$;
select penstock.regrant();
