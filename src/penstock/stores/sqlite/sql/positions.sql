-- name: group.created_after
select "offset", created_at from penstock_events indexed by penstock_events_stream
 where stream = :stream and "offset" > :after order by "offset" limit 1;

-- name: group.offset_at
-- The first event of a short stretch created at a time or later.
select min("offset") as "offset" from penstock_events indexed by penstock_events_stream
 where {{in_range()}} and created_at >= :at;

-- name: inspect.last_offset
select max("offset") as "offset" from penstock_events;
