-- Ingest: how far other systems' streams have been read, and which of their entries are stored.

-- How far a part of a source has been read: the next position to read. It moves in the transaction that stores the events.
create table if not exists penstock.ingest_positions (
  source   text not null,
  part     text not null,
  position bigint not null check (position >= 0),
  began_at timestamptz not null, -- part of the ids of its events: a part that begins anew has others
  moved_at timestamptz not null,
  primary key (source, part)
);

-- Sources whose entries are remembered by their ids. Whoever stores entries locks the row of their source.
create table if not exists penstock.ingest_sources (
  source   text primary key,
  began_at timestamptz not null
);

-- The ids of entries that are stored, by ranges. An id is two numbers of eight bytes each, the higher byte first, so that ids
-- compare as their bytes do; `entries` are all ids of the range, packed.
create table if not exists penstock.ingest_ranges (
  id              bigint generated always as identity primary key,
  source          text not null,
  low             bytea not null check (octet_length(low) = 16),
  high            bytea not null check (octet_length(high) = 16),
  entries         bytea not null,
  stored_at       timestamptz not null,
  acknowledged_at timestamptz,
  check (low <= high)
);
create index if not exists ingest_ranges_high on penstock.ingest_ranges (source, high, low);
create index if not exists ingest_ranges_age on penstock.ingest_ranges (source, acknowledged_at, stored_at);

alter function penstock.rights() rename to rights_until_0025;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0025() r
  union all
  values ('worker', 'insert, update', 'penstock.ingest_positions, penstock.ingest_sources'),
         ('worker', 'insert, update, delete', 'penstock.ingest_ranges')
$$;
select penstock.regrant();
