-- name: restore.pruned
select upto, changes from penstock_pruned where stream = :stream;

-- name: restore.chains
-- The last archive of a stream in each place.
select place, high, complete_from from penstock_archives a
 where stream = :stream and state = 'done'
   and high = (select max(b.high) from penstock_archives b
                where b.stream = a.stream and b.place = a.place and b.state = 'done');

-- name: restore.hold
insert into penstock_holds (stream, low, high, until_at) values (:stream, :low, :high, :until_at)
on conflict (stream, low, high) do update set until_at = max(excluded.until_at, until_at);

-- name: restore.forget_holds
delete from penstock_holds where stream = :stream and until_at <= :now;

-- name: restore.present
select "offset" from penstock_events where "offset" in (select value from json_each(:offsets));

-- name: restore.allow
insert into penstock_maintenance (one) values (1);

-- name: restore.put
insert into penstock_events ("offset", stream, event_id, event_type, payload, content_type, headers, metadata, partition_key,
                             ordering_key, bucket, available_at, created_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- name: restore.disallow
delete from penstock_maintenance;

-- name: restore.tally_now
insert into penstock_tally_now (stream, event_type, events)
select :stream, t.value, c.value from json_each(:types) t join json_each(:counts) c on c.key = t.key where true
on conflict (stream, event_type) do update set events = events + excluded.events;

-- name: restore.tally_steps
insert into penstock_tally_step (stream, upto, event_type, events)
select :stream, m.upto, t.value, c.value
  from (select distinct upto from penstock_tally_step where stream = :stream and upto >= :high) m
 cross join json_each(:types) t join json_each(:counts) c on c.key = t.key where true
on conflict (stream, upto, event_type) do update set events = events + excluded.events;

-- name: restore.leases
-- Ranges of a group that overlap a stretch: what is in work, and what was settled.
select low, high, lane, lanes, holes, upto, outcome from penstock_leases indexed by penstock_leases_range
 where group_id = :group_id and offsets is null and high > :low and low < :high
   and (outcome is null or outcome = 'settled');

-- name: restore.returned
select id, low, high, lane, lanes, binding from penstock_returned
 where group_id = :group_id and high > :low and low < :high;

-- name: restore.returned_members
update penstock_returned set members = :members where id = :id;

-- name: restore.others
-- Events of a stretch that were there before.
select "offset", {{bucket()}} as bucket from penstock_events indexed by penstock_events_stream
 where {{in_range()}} and "offset" not in (select value from json_each(:restored)) order by "offset";

-- name: restore.unprune
update penstock_pruned set upto = :upto where stream = :stream and changes = :changes;

-- name: restore.not_removed
-- What is back was not removed, and so does not count as appended.
insert into penstock_metric_removed (stream, events) values (:stream, -:events)
on conflict (stream) do update set events = events + excluded.events;
