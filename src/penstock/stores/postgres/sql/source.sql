-- name: source.events
select "offset", event_id::text, event_type, case when %(payload)s then payload end as payload, content_type, headers::text,
       metadata::text, partition_key, ordering_key, available_at, created_at
  from penstock.events
 where {{in_range()}}
   and {{of_types()}}
   and {{created_between()}}
 order by "offset" limit %(most)s;

-- name: source.deliveries
select {{delivery_columns(v.)}}
  from penstock.delivery v
 where v.group_id = %(group_id)s and v."offset" > %(low)s and v."offset" <= %(high)s
   and {{of_types(v.)}}
   and (%(states)s::text[] is null or v.state = any(%(states)s::text[]));

-- name: source.dead
select {{delivery_columns(d.)}},
       case when %(payload)s then e.payload end as payload, e.content_type, e.headers::text, e.metadata::text, e.created_at
  from penstock.deliveries d join penstock.events e on e."offset" = d."offset"
 where d.group_id = %(group_id)s and d.state = 'DEAD' and {{shown(d.)}} and d."offset" > %(low)s and d."offset" <= %(high)s
   and {{of_types(d.)}}
   and {{created_between(e.)}}
 order by d."offset" limit %(most)s;

-- name: source.attempts
select g.stream, g.group_name, a."offset", e.event_id::text, e.event_type, a.attempt, a.failures, a.replays, a.outcome,
       a.error, a.error_code, a.claimed_by, a.claimed_at, a.ended_at, a.lease
  from penstock.attempt_log a
  join penstock.groups g on g.group_id = a.group_id
  left join penstock.events e on e."offset" = a."offset"
 where a.group_id = %(group_id)s and a."offset" > %(low)s and a."offset" <= %(high)s
   and {{of_types(e.)}};
