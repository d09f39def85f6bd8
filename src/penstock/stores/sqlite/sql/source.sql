-- name: source.events
select e."offset", e.event_id, e.event_type, case when :payload then e.payload end, e.content_type, e.headers,
       e.metadata, e.partition_key, e.ordering_key, e.available_at, e.created_at, e.stream
  from penstock_events e indexed by penstock_events_stream
 where {{in_range(e.)}}
   and {{of_types(e.)}}
   and {{created_between(e.)}}
 order by e."offset" limit :most;

-- name: source.deliveries
select {{delivery_columns(v.)}}
  from penstock_delivery v
 where v.group_id = :group_id and v."offset" > :low and v."offset" <= :high
   and {{of_types(v.)}}
   and (:states is null or v.state in (select value from json_each(:states)));

-- name: source.dead
select {{delivery_columns(d.)}},
       case when :payload then e.payload end, e.content_type, e.headers, e.metadata, e.created_at
  from penstock_deliveries d join penstock_events e on e."offset" = d."offset"
 where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and d."offset" > :low and d."offset" <= :high
   and {{of_types(d.)}}
   and {{created_between(e.)}}
 order by d."offset" limit :most;

-- name: source.attempts
select g.stream, g.group_name, a."offset", e.event_id, e.event_type, a.attempt, a.failures, a.replays, a.outcome,
       a.error, a.error_code, a.claimed_by, a.claimed_at, a.ended_at, a.lease
  from penstock_attempt_log a
  join penstock_groups g on g.group_id = a.group_id
  left join penstock_events e on e."offset" = a."offset"
 where a.group_id = :group_id and a."offset" > :low and a."offset" <= :high
   and {{of_types(e.)}};
