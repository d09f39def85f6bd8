-- Ingest: how far other systems' streams have been read, and which of their entries are stored.

-- How far a part of a source has been read: the next position to read. It moves in the transaction that stores the events.
create table if not exists penstock_ingest_positions (
  source   text not null,
  part     text not null,
  position integer not null check (position >= 0),
  began_at integer not null, -- part of the ids of its events: a part that begins anew has others
  moved_at integer not null,
  primary key (source, part)
) without rowid;

-- Sources whose entries are remembered by their ids.
create table if not exists penstock_ingest_sources (
  source   text primary key,
  began_at integer not null
) without rowid;

-- The ids of entries that are stored, by ranges. An id is two numbers of eight bytes each, the higher byte first, so that ids
-- compare as their bytes do; `entries` are all ids of the range, packed.
create table if not exists penstock_ingest_ranges (
  id              integer primary key,
  source          text not null,
  low             blob not null check (length(low) = 16),
  high            blob not null check (length(high) = 16),
  entries         blob not null,
  stored_at       integer not null,
  acknowledged_at integer,
  check (low <= high)
);
create index if not exists penstock_ingest_ranges_high on penstock_ingest_ranges (source, high, low);
create index if not exists penstock_ingest_ranges_age on penstock_ingest_ranges (source, acknowledged_at, stored_at);
