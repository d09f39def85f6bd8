-- name: read.events
-- Times stay numbers and ids stay text until somebody looks at them.
select {{event_columns}}
  from penstock_events e indexed by penstock_events_stream
 where e.stream = :stream and e."offset" > :after and e."offset" <= :upto
 order by e."offset" limit :limit;

-- name: read.range
select {{event_columns}}
  {{members_of_lease}}
 order by e."offset";

-- name: read.lane
select {{event_columns}}
  {{members_of_lease}}
   and {{of_buckets(e.)}}
 order by e."offset";

-- name: read.holes
select {{event_columns}}
  {{members_of_lease}}
   and {{of_buckets(e.)}}
   and e."offset" not in (select value from json_each(:holes))
 order by e."offset";

-- name: read.rows
select {{event_columns}},
       d.attempts, d.failures, d.last_error, d.replays, d.earlier_attempts
  from json_each(:offsets) o
 cross join penstock_deliveries d on d.group_id = :group_id and d."offset" = o.value
 cross join penstock_events e on e."offset" = d."offset"
 order by e."offset";
