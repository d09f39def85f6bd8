-- name: group.created_after
select "offset", created_at from penstock.events
 where stream = %(stream)s and "offset" > %(after)s order by "offset" limit 1;

-- name: group.offset_at
-- The first event of a short stretch created at a time or later.
select min("offset") as "offset" from (
  select "offset" from penstock.events
   where {{in_range()}} and created_at >= %(at)s offset 0) later;

-- name: inspect.last_offset
select max("offset") as "offset" from penstock.events;
