-- name: append.single
-- One event, and all that its transaction does: it is stored, and whoever waits is told (see wake.notify). No answer if its
-- id is known.
select given, case when not %(wake)s or pg_try_advisory_lock({{waiters}})
                   then %(wake)s and pg_advisory_unlock({{waiters}})
                   else pg_notify(%(channel)s, '') is not null end as woke
  from penstock.settings()
 cross join lateral (
   select penstock.put_event(
     %(stream)s, %(event_id)s::uuid, %(event_type)s, %(payload)s::bytea, %(content_type)s, %(headers)s::text::jsonb,
     %(metadata)s::text::jsonb, %(partition_key)s, %(ordering_key)s, %(bucket)s::smallint,
     %(available_at)s::timestamptz) as given offset 0) put
 where given is not null;

-- name: append.copy
copy penstock.events ({{event_fields}}) from stdin (format binary);

-- name: append.copy_at
copy penstock.events ({{event_fields}}, created_at) from stdin (format binary);

-- name: append.many
-- Ids that may be known already: what is new is stored, the rest is reported.
select event_id from penstock.put_events(
         %(stream)b::text[], %(event_id)b::uuid[], %(event_type)b::text[], %(payload)b::bytea[],
         %(content_type)b::text[], %(headers)b::text[], %(metadata)b::text[], %(partition_key)b::text[],
         %(ordering_key)b::text[], %(bucket)b::smallint[], %(available_at)b::timestamptz[]) as event_id;

-- name: append.many_at
-- The same with a time from the test clock.
insert into penstock.events ({{event_fields}}, created_at)
select n.stream, n.event_id, n.event_type, n.payload, n.content_type, n.headers::jsonb, n.metadata::jsonb,
       n.partition_key, n.ordering_key, n.bucket, n.available_at, %(created_at)s::timestamptz
  from unnest(%(stream)b::text[], %(event_id)b::uuid[], %(event_type)b::text[], %(payload)b::bytea[],
              %(content_type)b::text[], %(headers)b::text[], %(metadata)b::text[], %(partition_key)b::text[],
              %(ordering_key)b::text[], %(bucket)b::smallint[], %(available_at)b::timestamptz[])
    as n({{event_fields}})
on conflict (event_id) do nothing
returning event_id;

-- name: append.known
select event_id, same
  from penstock.known_events(%(stream)b::text[], %(event_id)b::uuid[], %(event_type)b::text[], %(payload)b::bytea[]);
