-- name: life.find
-- An event by its id or its offset, whatever its stream.
select stream, "offset" from penstock.events
 where "offset" = coalesce(%(offset)s::bigint, (select "offset" from penstock.events where event_id = %(event_id)s::uuid));

-- name: life.pruned
select stream, upto from penstock.pruned order by stream;

-- name: life.event
-- An event without its payload.
select e.stream, e."offset", e.event_id, e.event_type, e.content_type, octet_length(e.payload) as bytes, e.headers,
       e.metadata, e.partition_key, e.ordering_key, e.available_at, e.created_at
  from penstock.events e where e.stream = %(stream)s and e."offset" = %(offset)s;

-- name: life.deliveries
-- An event as every group of its stream sees it.
select v.group_id, v.group_name, v.state, v.attempts, v.failures, v.total_attempts, v.available_at, v.claimed_at,
       v.claimed_by, v.last_error, v.error_code, v.error_type, v.fingerprint, v.reason, v.published_at, v.dead_at,
       v.lease, d.operation, d.group_id is not null as has_row
  from penstock.delivery v
  left join penstock.deliveries d on d.group_id = v.group_id and d."offset" = v."offset"
 where v.stream = %(stream)s and v."offset" = %(offset)s
 order by v.group_name;

-- name: life.history
-- What happened to an event in every group of its stream.
select h.group_name, h.attempt, h.failures, h.replays, h.outcome, h.error, h.error_code, h.claimed_by, h.claimed_at,
       h.ended_at, h.lease, h.at, h.by, h.error_type, h.fingerprint, f.traceback
  from penstock.history h left join penstock.fingerprints f on f.fingerprint = h.fingerprint
 where h.stream = %(stream)s and h."offset" = %(offset)s
 order by h.group_name, h.at, h.lease nulls last, h.step, h.line;

-- name: life.leases
select l.id, l.lane, l.lanes, l.claimed_by, l.claimed_at, l.expires_at, l.heartbeat_at, l.members,
       l.offsets is null as ranged, l.outcome, l.ended_at
  from penstock.leases l where l.id = any(%(ids)s::bigint[]) order by l.id;

-- name: life.before
-- What is before an event in its lane, among as many as are looked at; first where they are, out of the index alone.
select l.group_id, c.before, c.looked
  from penstock.lane l
 cross join lateral (
       select count(*) filter (where {{in_lane(e., l.)}} and {{bound(e.)}}) as before, count(*) as looked
         from (select stream, "offset" from penstock.events
                where stream = %(stream)s and "offset" > l.cursor and "offset" < %(offset)s
                order by stream, "offset" limit %(most)s) k
        cross join lateral (select * from penstock.events where "offset" = k."offset" offset 0) e
         join penstock.binding_span b on b.group_id = l.group_id and e."offset" > b.low and e."offset" <= b.high) c
 where l.group_id = any(%(ids)s::int[]) and %(bucket)s * l.lanes / 256 = l.lane;
