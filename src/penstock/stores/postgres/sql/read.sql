-- name: read.events
-- Times and ids come as raw bytes and are decoded when somebody looks at them.
select {{event_columns()}}
  from penstock.events
 where stream = %(stream)s and "offset" > %(after)s and "offset" <= %(upto)s
 order by "offset" limit %(limit)s;

-- name: read.range
-- A whole range, without filter, lanes or holes.
select {{event_columns(e.)}}
  from penstock.events e
 where stream = %(stream)s and e."offset" > %(low)s and e."offset" <= %(high)s
 order by e."offset";

-- name: read.lane
-- The same for one lane.
select {{event_columns(e.)}}
  from penstock.events e
 where {{of_lease}}
 order by e."offset" limit %(members)s;

-- name: read.found
-- Members that the claim has named, in the words in which the database named them.
select {{event_columns()}}
  from penstock.events where "offset" = any(%(found)s::bigint[]) order by "offset";

-- name: read.members
-- What a lease contains follows from its own row, for ever.
select {{event_columns(e.)}}
  {{members_of_lease}};

-- name: read.rows
select e."offset", uuid_send(e.event_id), e.event_type, payload, content_type, headers::text, metadata::text,
       partition_key, e.ordering_key, timestamptz_send(e.available_at), timestamptz_send(created_at),
       d.attempts, d.failures, d.last_error, d.replays, d.earlier_attempts
  from penstock.deliveries d join penstock.events e on e."offset" = d."offset"
 where d.group_id = %(group_id)s and d."offset" = any(%(offsets)s::bigint[])
 order by e."offset";

-- name: inspect.event
select "offset", event_id, event_type, {{bucket()}}::int as bucket from penstock.events
 where stream = %(stream)s and (event_id = %(event_id)s::uuid or "offset" = %(offset)s::bigint);

-- name: inspect.streams
-- One look into the index per stream, however long the log is.
with recursive streams as (
  (select stream from penstock.events order by stream limit 1)
  union all
  select (select e.stream from penstock.events e where e.stream > s.stream order by e.stream limit 1)
    from streams s where s.stream is not null
)
select s.stream, (select "offset" from penstock.events e where e.stream = s.stream
                   order by e."offset" desc limit 1) as last_offset
  from streams s where s.stream is not null;
