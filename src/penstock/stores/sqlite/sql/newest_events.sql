-- name: newest.events
-- Events of a stream, the newest first, with the beginning of their payloads; of all types, or of one.
-- (The beginning of an empty payload would be null.)
select e."offset", e.event_id, e.event_type, e.ordering_key, e.content_type, e.created_at, e.available_at,
       length(e.payload) as size, coalesce(substr(e.payload, 1, :shown), x'') as payload
  from (select * from penstock_events indexed by penstock_events_stream
         where stream = :stream and "offset" > :low and "offset" < :before and "offset" <= :upto
         order by "offset" desc limit :look) e
 where :event_type is null or e.event_type = :event_type
 order by e."offset" desc limit :limit;

-- name: newest.among
-- How many events of a stream lie between two offsets, counted up to a limit, and where they begin.
select count(*) as events, min("offset") as "offset" from (
  select "offset" from penstock_events indexed by penstock_events_stream where {{in_range()}}
   order by "offset" desc limit :look) e;
