-- name: read.events
-- Times stay numbers and ids stay text until somebody looks at them.
select e."offset", e.event_id, e.event_type, e.payload, e.content_type, e.headers, e.metadata, e.partition_key,
       e.ordering_key, e.available_at, e.created_at
  from penstock_events e indexed by penstock_events_stream
 where e.stream = :stream and e."offset" > :after and e."offset" <= :upto
 order by e."offset" limit :limit;

-- name: read.range
select e."offset", e.event_id, e.event_type, e.payload, e.content_type, e.headers, e.metadata, e.partition_key,
       e.ordering_key, e.available_at, e.created_at
  from penstock_bindings b
 cross join penstock_events e indexed by penstock_events_stream on e.stream = :stream
 where b.id = :binding and e."offset" > :low and e."offset" <= :high
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
 order by e."offset";

-- name: read.lane
select e."offset", e.event_id, e.event_type, e.payload, e.content_type, e.headers, e.metadata, e.partition_key,
       e.ordering_key, e.available_at, e.created_at
  from penstock_bindings b
 cross join penstock_events e indexed by penstock_events_stream on e.stream = :stream
 where b.id = :binding and e."offset" > :low and e."offset" <= :high
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and coalesce(e.bucket, e."offset" % 256) between :first_bucket and :last_bucket
 order by e."offset";

-- name: read.holes
select e."offset", e.event_id, e.event_type, e.payload, e.content_type, e.headers, e.metadata, e.partition_key,
       e.ordering_key, e.available_at, e.created_at
  from penstock_bindings b
 cross join penstock_events e indexed by penstock_events_stream on e.stream = :stream
 where b.id = :binding and e."offset" > :low and e."offset" <= :high
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and coalesce(e.bucket, e."offset" % 256) between :first_bucket and :last_bucket
   and e."offset" not in (select value from json_each(:holes))
 order by e."offset";

-- name: read.rows
select e."offset", e.event_id, e.event_type, e.payload, e.content_type, e.headers, e.metadata, e.partition_key,
       e.ordering_key, e.available_at, e.created_at,
       d.attempts, d.failures, d.last_error, d.replays, d.earlier_attempts
  from json_each(:offsets) o
 cross join penstock_deliveries d on d.group_id = :group_id and d."offset" = o.value
 cross join penstock_events e on e."offset" = d."offset"
 order by e."offset";
