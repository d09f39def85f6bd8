-- name: newest.events
-- Events of a stream, the newest first, with the beginning of their payloads. A type is looked for among so many.
-- The beginning of an empty payload would be null.
select e."offset", e.event_id, e.event_type, e.ordering_key, e.content_type, e.created_at, e.available_at,
       length(e.payload) as bytes, coalesce(substr(e.payload, 1, :shown), x'') as payload
  from (select * from penstock_events indexed by penstock_events_stream
         where stream = :stream and "offset" < :before and "offset" <= :upto
         order by "offset" desc limit :look) e
 where :event_type is null or e.event_type = :event_type
 order by e."offset" desc limit :limit;

-- name: newest.reach
-- How far that look went.
select min("offset") as "offset", count(*) as looked from (
  select "offset" from penstock_events indexed by penstock_events_stream
   where stream = :stream and "offset" < :before and "offset" <= :upto
   order by "offset" desc limit :look) e;
