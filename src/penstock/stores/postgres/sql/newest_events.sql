-- name: newest.events
-- Events of a stream, the newest first, with the beginning of their payloads; of all types, or of one.
select e."offset", e.event_id, e.event_type, e.ordering_key, e.content_type, e.created_at, e.available_at,
       octet_length(e.payload) as size, substring(e.payload from 1 for %(shown)s) as payload
  from (select * from penstock.events
         where stream = %(stream)s and "offset" > %(low)s and "offset" < %(before)s and "offset" <= %(upto)s
         order by "offset" desc limit %(look)s) e
 where %(event_type)s::text is null or e.event_type = %(event_type)s
 order by e."offset" desc limit %(limit)s;

-- name: newest.among
-- How many events of a stream lie between two offsets, counted up to a limit, and where they begin.
select count(*) as events, min("offset") as "offset" from (
  select "offset" from penstock.events where {{in_range()}}
   order by "offset" desc limit %(look)s) e;
