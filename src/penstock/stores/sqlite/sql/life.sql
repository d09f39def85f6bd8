-- name: life.find
-- An event by its id or its offset, whatever its stream.
select stream, "offset" from penstock_events
 where "offset" = coalesce(:offset, (select "offset" from penstock_events where event_id = :event_id));

-- name: life.pruned
select stream, upto from penstock_pruned order by stream;

-- name: life.event
-- An event without its payload.
select e.stream, e."offset", e.event_id, e.event_type, e.content_type, length(e.payload) as bytes, e.headers,
       e.metadata, e.partition_key, e.ordering_key, e.available_at, e.created_at
  from penstock_events e where e.stream = :stream and e."offset" = :offset;

-- name: life.deliveries
-- An event as every group of its stream sees it.
select v.group_id, v.group_name, v.state, v.attempts, v.failures, v.total_attempts, v.available_at, v.claimed_at,
       v.claimed_by, v.last_error, v.error_code, v.error_type, v.fingerprint, v.reason, v.published_at, v.dead_at,
       v.lease, d.operation, d.group_id is not null as has_row
  from penstock_groups g cross join penstock_delivery v on v.group_id = g.group_id
  left join penstock_deliveries d on d.group_id = v.group_id and d."offset" = v."offset"
 where g.stream = :stream and v.stream = :stream and v."offset" = :offset
 order by v.group_name;

-- name: life.history
-- What happened to an event in every group of its stream.
select h.group_name, h.attempt, h.failures, h.replays, h.outcome, h.error, h.error_code, h.claimed_by, h.claimed_at,
       h.ended_at, h.lease, h.at as happened_at, h."by", h.error_type, h.fingerprint, f.traceback
  from penstock_history h left join penstock_fingerprints f on f.fingerprint = h.fingerprint
 where h.stream = :stream and h."offset" = :offset
 order by h.group_name, h.at, h.lease nulls last, h.step, h.line;

-- name: life.leases
select l.id, l.lane, l.lanes, l.claimed_by, l.claimed_at, l.expires_at, l.heartbeat_at, l.members,
       l.offsets is null as ranged, l.outcome, l.ended_at
  from penstock_leases l where l.id in (select value from json_each(:ids)) order by l.id;

-- name: life.before
-- What is before an event in its lane, among as many as are looked at.
select l.group_id, (
         select count(*) from (
           select "offset", event_type, headers, bucket from penstock_events indexed by penstock_events_stream
            where stream = :stream and "offset" > l.cursor and "offset" < :offset
            order by "offset" limit :most) e
          join penstock_binding_span b on b.group_id = l.group_id and e."offset" > b.low and e."offset" <= b.high
         where {{in_lane(e., l.)}} and {{bound(b.binding, e.)}}) as before, (
         select count(*) from (
           select 1 from penstock_events indexed by penstock_events_stream
            where stream = :stream and "offset" > l.cursor and "offset" < :offset limit :most)) as looked
  from penstock_lane l where l.group_id in (select value from json_each(:ids)) and :bucket * l.lanes / 256 = l.lane;
