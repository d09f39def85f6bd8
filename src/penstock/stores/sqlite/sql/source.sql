-- name: source.counted
-- Events of a stream up to every step of the tally within a range.
select upto, sum(events) as events from penstock_tally_step
 where stream = :stream and upto >= :low and upto <= :high group by upto order by upto;

-- name: source.count
-- The same for what is not counted yet, in blocks of its own: the index alone answers.
select ("offset" - 1) / :size as block, count(*) as events from penstock_events
 where stream = :stream and "offset" > :low and "offset" <= :high group by 1 order by 1;

-- name: source.nth
-- The event so many places behind an offset.
select "offset" from penstock_events indexed by penstock_events_stream
 where stream = :stream and "offset" > :low and "offset" <= :high order by "offset" limit 1 offset :skip;

-- name: source.between
-- Where the events of a time begin and end.
select min("offset") as first, max("offset") as last from penstock_events indexed by penstock_events_created
 where stream = :stream and created_at >= :since and (:until is null or created_at < :until);

-- name: source.events
select e."offset", e.event_id, e.event_type, case when :payload then e.payload end, e.content_type, e.headers,
       e.metadata, e.partition_key, e.ordering_key, e.available_at, e.created_at, e.stream
  from penstock_events e indexed by penstock_events_stream
 where e.stream = :stream and e."offset" > :low and e."offset" <= :high
   and (:types is null or e.event_type in (select value from json_each(:types)))
   and (:since is null or e.created_at >= :since) and (:until is null or e.created_at < :until)
 order by e."offset";

-- name: source.deliveries
select v.stream, v.group_name, v."offset", v.event_id, v.event_type, v.state, v.attempts, v.failures,
       v.available_at, v.claimed_at, v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at,
       v.updated_at, v.ordering_key, v.lease
  from penstock_delivery v
 where v.group_id = :group_id and v."offset" > :low and v."offset" <= :high
   and (:types is null or v.event_type in (select value from json_each(:types)))
   and (:states is null or v.state in (select value from json_each(:states)));

-- name: source.dead
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, d.state, d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease,
       case when :payload then e.payload end, e.content_type, e.headers, e.metadata, e.created_at
  from penstock_deliveries d join penstock_events e on e."offset" = d."offset"
 where d.group_id = :group_id and d.state = 'DEAD' and d."offset" > :low and d."offset" <= :high
   and (:types is null or d.event_type in (select value from json_each(:types)))
   and (:since is null or e.created_at >= :since) and (:until is null or e.created_at < :until);

-- name: source.attempts
select g.stream, g.group_name, a."offset", e.event_id, e.event_type, a.attempt, a.failures, a.replays, a.outcome,
       a.error, a.error_code, a.claimed_by, a.claimed_at, a.ended_at, a.lease
  from penstock_attempt_log a
  join penstock_groups g on g.group_id = a.group_id
  left join penstock_events e on e."offset" = a."offset"
 where a.group_id = :group_id and a."offset" > :low and a."offset" <= :high
   and (:types is null or e.event_type in (select value from json_each(:types)));
