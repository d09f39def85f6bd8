-- name: ingest.positions
select part, position, began_at from penstock.ingest_positions where source = %(source)s;

-- name: ingest.begin
-- Where a part begins to be read; nothing if somebody has begun.
insert into penstock.ingest_positions (source, part, position, began_at, moved_at)
values (%(source)s, %(part)s, %(position)s, %(now)s, %(now)s) on conflict do nothing;

-- name: ingest.move
-- Only from the position that the entries were read from: no row if somebody else went on.
update penstock.ingest_positions set position = %(position)s, moved_at = %(now)s
 where source = %(source)s and part = %(part)s and position = %(expected)s;

-- name: ingest.known_source
select began_at from penstock.ingest_sources where source = %(source)s;

-- name: ingest.add_source
insert into penstock.ingest_sources (source, began_at) values (%(source)s, %(now)s) on conflict do nothing;

-- name: ingest.lock
-- One after the other compares entries with what is remembered.
select source from penstock.ingest_sources where source = %(source)s for update;

-- name: ingest.remembered
-- Ranges that may hold ids from low to high. None is longer than to `furthest` if it begins at high.
select entries from penstock.ingest_ranges
 where source = %(source)s and high >= %(low)s and high <= %(furthest)s and low <= %(high)s;

-- name: ingest.remember
insert into penstock.ingest_ranges (source, low, high, entries, stored_at)
values (%(source)s, %(low)s, %(high)s, %(entries)s, %(now)s) returning id;

-- name: ingest.acknowledge
-- The first time counts.
update penstock.ingest_ranges set acknowledged_at = %(now)s
 where id = any (%(ids)s::bigint[]) and acknowledged_at is null;

-- name: ingest.unacknowledged
-- Ranges of which nobody noted that they are acknowledged: the process may have died just then.
select id, low, high from penstock.ingest_ranges
 where source = %(source)s and acknowledged_at is null and stored_at < %(before)s
 order by stored_at limit %(limit)s;

-- name: ingest.forget
delete from penstock.ingest_ranges
 where id in (select id from penstock.ingest_ranges where source = %(source)s and acknowledged_at < %(before)s
               order by acknowledged_at limit %(limit)s for update skip locked);
