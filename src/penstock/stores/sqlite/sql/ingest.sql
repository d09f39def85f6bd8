-- name: ingest.positions
select part, position, began_at from penstock_ingest_positions where source = :source;

-- name: ingest.begin
-- Where a part begins to be read; nothing if somebody has begun.
insert into penstock_ingest_positions (source, part, position, began_at, moved_at)
values (:source, :part, :position, :now, :now) on conflict do nothing;

-- name: ingest.move
-- Only from the position that the entries were read from: no row if somebody else went on.
update penstock_ingest_positions set position = :position, moved_at = :now
 where source = :source and part = :part and position = :expected;

-- name: ingest.known_source
select began_at from penstock_ingest_sources where source = :source;

-- name: ingest.add_source
insert into penstock_ingest_sources (source, began_at) values (:source, :now) on conflict do nothing;

-- name: ingest.lock
-- One after the other compares entries with what is remembered.
select source from penstock_ingest_sources where source = :source;

-- name: ingest.remembered
-- Ranges that may hold ids from low to high. None is longer than to `furthest` if it begins at high.
select entries from penstock_ingest_ranges
 where source = :source and high >= :low and high <= :furthest and low <= :high;

-- name: ingest.remember
insert into penstock_ingest_ranges (source, low, high, entries, stored_at)
values (:source, :low, :high, :entries, :now) returning id;

-- name: ingest.acknowledge
-- The first time counts.
update penstock_ingest_ranges set acknowledged_at = :now
 where id in (select value from json_each(:ids)) and acknowledged_at is null;

-- name: ingest.unacknowledged
-- Ranges of which nobody noted that they are acknowledged: the process may have died just then.
select id, low, high from penstock_ingest_ranges
 where source = :source and acknowledged_at is null and stored_at < :before
 order by stored_at limit :limit;

-- name: ingest.forget
delete from penstock_ingest_ranges
 where id in (select id from penstock_ingest_ranges where source = :source and acknowledged_at < :before
               order by acknowledged_at limit :limit);
