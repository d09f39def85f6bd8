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

-- name: inspect.event
select "offset", event_id, event_type, {{bucket()}} as bucket from penstock_events
 where "offset" = coalesce(:offset, (select "offset" from penstock_events where event_id = :event_id))
   and stream = :stream;

-- name: inspect.streams
-- One look into the index per stream, however long the log is.
with recursive streams(stream) as (
  select min(stream) from penstock_events
  union all
  select (select min(e.stream) from penstock_events e where e.stream > s.stream) from streams s where s.stream is not null
)
select s.stream, (select max("offset") from penstock_events e where e.stream = s.stream) as last_offset
  from streams s where s.stream is not null;
