-- name: outbox.insert
-- In the caller's transaction, through any driver: plain values only, and the time is the database's.
insert into penstock_events ({{event_fields}})
values (:stream, :event_id, :event_type, :payload, :content_type, :headers, :metadata, :partition_key, :ordering_key,
        :bucket, :available_at)
on conflict (event_id) do nothing
returning "offset";

-- name: outbox.insert_at
-- The same with a time from the test clock.
insert into penstock_events ({{event_fields}}, created_at)
values (:stream, :event_id, :event_type, :payload, :content_type, :headers, :metadata, :partition_key, :ordering_key,
        :bucket, :available_at, :created_at)
on conflict (event_id) do nothing
returning "offset";

-- name: outbox.identity
-- Which file a connection would append to: the first row is that of the main one.
pragma database_list;

-- name: outbox.find
-- Where an event is that was appended before, and whether it is the same.
select "offset", stream = :stream and event_type = :event_type and payload = :payload as same
  from penstock_events where event_id = :event_id;
