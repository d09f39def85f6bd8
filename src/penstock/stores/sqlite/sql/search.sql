-- name: search.event
-- An event by its id or its offset.
select stream, "offset", event_id, event_type, ordering_key, created_at from penstock_events where event_id = :event_id
union all
select stream, "offset", event_id, event_type, ordering_key, created_at from penstock_events where "offset" = :offset;

-- name: search.keys
-- Among the newest events of a stream those of a key.
select e.stream, e."offset", e.event_id, e.event_type, e.ordering_key, e.created_at
  from (select * from penstock_events indexed by penstock_events_stream
         where stream = :stream and "offset" > :low order by "offset" desc limit :look) e
 where e.ordering_key = :key or e.partition_key = :key order by e."offset" desc limit :limit;

-- name: search.errors
-- Among the newest dead letters of a group those whose error has this code, or says this.
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, d.error_code, d.last_error, d.dead_at
  from (select * from penstock_deliveries indexed by penstock_deliveries_dead
         where group_name = :group_name and stream = :stream and state = 'DEAD'
         order by updated_at desc limit :look) d
 where {{of_error(d.)}} order by d.updated_at desc limit :limit;
