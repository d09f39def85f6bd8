-- name: search.event
-- An event by its id or its offset.
select stream, "offset", event_id, event_type, ordering_key, created_at from penstock.events
 where event_id = %(event_id)s::uuid or "offset" = %(offset)s::bigint limit 2;

-- name: search.keys
-- Among the newest events of a stream those of a key.
select e.stream, e."offset", e.event_id, e.event_type, e.ordering_key, e.created_at
  from (select * from penstock.events where stream = %(stream)s and "offset" > %(low)s
         order by "offset" desc limit %(look)s) e
 where e.ordering_key = %(key)s or e.partition_key = %(key)s order by e."offset" desc limit %(limit)s;

-- name: search.errors
-- Among the newest dead letters of a group those whose error has this code, or says this.
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, d.error_code, d.last_error, d.dead_at
  from (select * from penstock.deliveries
         where group_name = %(group_name)s and stream = %(stream)s and state = 'DEAD'
         order by updated_at desc limit %(look)s) d
 where {{of_error(d.)}} order by d.updated_at desc limit %(limit)s;
