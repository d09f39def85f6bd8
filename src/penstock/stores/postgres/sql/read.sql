-- name: read.events
-- Times and ids come as raw bytes and are decoded when somebody looks at them.
select "offset", uuid_send(event_id), event_type, payload, content_type, headers::text, metadata::text, partition_key,
       ordering_key, timestamptz_send(available_at), timestamptz_send(created_at)
  from penstock.events
 where (stream, "offset") > (%(stream)s, %(after)s::bigint) and (stream, "offset") <= (%(stream)s, %(upto)s::bigint)
 order by stream, "offset" limit %(limit)s;

-- name: read.range
select e."offset", uuid_send(event_id), event_type, payload, content_type, e.headers::text, metadata::text, partition_key,
       ordering_key, timestamptz_send(available_at), timestamptz_send(e.created_at)
  from penstock.events e
 where (stream, e."offset") > (%(stream)s, %(low)s::bigint) and (stream, e."offset") <= (%(stream)s, %(high)s::bigint)
   and (%(type_regex)s::text is null or event_type ~ %(type_regex)s::text)
   and (%(headers)s::jsonb is null or e.headers @> %(headers)s::jsonb)
 order by stream, e."offset" limit %(members)s;

-- name: read.lane
select e."offset", uuid_send(event_id), event_type, payload, content_type, e.headers::text, metadata::text, partition_key,
       ordering_key, timestamptz_send(available_at), timestamptz_send(e.created_at)
  from penstock.events e
 where (stream, e."offset") > (%(stream)s, %(low)s::bigint) and (stream, e."offset") <= (%(stream)s, %(high)s::bigint)
   and coalesce(bucket, mod(e."offset", 256)) between %(first_bucket)s and %(last_bucket)s
   and (%(type_regex)s::text is null or event_type ~ %(type_regex)s::text)
   and (%(headers)s::jsonb is null or e.headers @> %(headers)s::jsonb)
 order by stream, e."offset" limit %(members)s;

-- name: read.holes
select e."offset", uuid_send(event_id), event_type, payload, content_type, e.headers::text, metadata::text, partition_key,
       ordering_key, timestamptz_send(available_at), timestamptz_send(e.created_at)
  from penstock.events e
 where (stream, e."offset") > (%(stream)s, %(low)s::bigint) and (stream, e."offset") <= (%(stream)s, %(high)s::bigint)
   and coalesce(bucket, mod(e."offset", 256)) between %(first_bucket)s and %(last_bucket)s
   and (%(type_regex)s::text is null or event_type ~ %(type_regex)s::text)
   and (%(headers)s::jsonb is null or e.headers @> %(headers)s::jsonb)
   and e."offset" <> all(%(holes)s::bigint[])
 order by stream, e."offset" limit %(members)s;

-- name: read.rows
select e."offset", uuid_send(e.event_id), e.event_type, payload, content_type, headers::text, metadata::text,
       partition_key, e.ordering_key, timestamptz_send(e.available_at), timestamptz_send(created_at),
       d.attempts, d.failures, d.last_error, d.replays
  from penstock.deliveries d join penstock.events e on e."offset" = d."offset"
 where d.group_id = %(group_id)s and d."offset" = any(%(offsets)s::bigint[])
 order by e."offset";
