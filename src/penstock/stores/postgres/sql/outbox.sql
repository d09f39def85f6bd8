-- name: outbox.insert
-- In the caller's transaction, in neutral form: `:name` becomes what the caller's driver understands. A function, because
-- a producer may not read events, and RETURNING is reading.
select given from penstock.put_event(
         cast(:stream as text), cast(:event_id as uuid), cast(:event_type as text), cast(:payload as bytea),
         cast(:content_type as text), cast(cast(:headers as text) as jsonb), cast(cast(:metadata as text) as jsonb),
         cast(:partition_key as text), cast(:ordering_key as text), cast(:bucket as smallint),
         cast(:available_at as timestamptz)) as given
 where given is not null;

-- name: outbox.insert_at
-- The same with a time from the test clock.
insert into penstock.events ({{event_fields}}, created_at)
values (cast(:stream as text), cast(:event_id as uuid), cast(:event_type as text), cast(:payload as bytea),
        cast(:content_type as text), cast(cast(:headers as text) as jsonb), cast(cast(:metadata as text) as jsonb),
        cast(:partition_key as text), cast(:ordering_key as text), cast(:bucket as smallint),
        cast(:available_at as timestamptz), cast(:created_at as timestamptz))
on conflict (event_id) do nothing
returning "offset";

-- name: outbox.identity
-- Which log a connection would append to, however it is reached: the server's start, the database, the table.
select cast(extract(epoch from pg_postmaster_start_time()) * 1000000 as bigint),
       (select cast(d.oid as bigint) from pg_catalog.pg_database d where d.datname = current_database()),
       cast(cast(to_regclass('penstock.events') as oid) as bigint);

-- name: outbox.find
-- Where an event is that was appended before, and whether it is the same.
select "offset", same
  from penstock.known_events(array[cast(:stream as text)], array[cast(:event_id as uuid)],
                             array[cast(:event_type as text)], array[cast(:payload as bytea)]);
