-- name: restore.pruned
select upto, changes from penstock.pruned where stream = %(stream)s;

-- name: restore.chains
-- The last archive of a stream in each place.
select distinct on (place) place, high, complete_from from penstock.archives
 where stream = %(stream)s and state = 'done' order by place, high desc;

-- name: restore.hold
insert into penstock.holds (stream, low, high, until_at) values (%(stream)s, %(low)s, %(high)s, %(until_at)s)
on conflict (stream, low, high) do update set until_at = greatest(excluded.until_at, penstock.holds.until_at);

-- name: restore.forget_holds
delete from penstock.holds where stream = %(stream)s and until_at <= %(now)s;

-- name: restore.present
select "offset" from penstock.events where "offset" = any(%(offsets)s::bigint[]);

-- name: restore.put
select "offset" from penstock.restore_events(
         %(stream)s, %(offsets)s::bigint[], %(event_ids)s::uuid[], %(event_types)s::text[], %(payloads)s::bytea[],
         %(content_types)s::text[], %(headers)s::text[], %(metadata)s::text[], %(partition_keys)s::text[],
         %(ordering_keys)s::text[], %(times)s::timestamptz[], %(created)s::timestamptz[]) as "offset";

-- name: restore.tally_now
insert into penstock.tally_now as n (stream, event_type, events)
select %(stream)s, c.event_type, c.events from unnest(%(types)s::text[], %(counts)s::bigint[]) as c(event_type, events)
on conflict (stream, event_type) do update set events = n.events + excluded.events;

-- name: restore.tally_steps
insert into penstock.tally_step as s (stream, upto, event_type, events)
select %(stream)s, m.upto, c.event_type, c.events
  from (select distinct upto from penstock.tally_step where stream = %(stream)s and upto >= %(high)s) m
 cross join unnest(%(types)s::text[], %(counts)s::bigint[]) as c(event_type, events)
on conflict (stream, upto, event_type) do update set events = s.events + excluded.events;

-- name: restore.leases
-- Ranges of a group that overlap a stretch: what is in work, and what was settled.
select low, high, lane, lanes, holes, upto, outcome from penstock.leases
 where int8range(low, high, '(]') && int8range(%(low)s, %(high)s, '(]') and group_id + 0 = %(group_id)s and offsets is null
   and (outcome is null or outcome = 'settled');

-- name: restore.returned
select id, low, high, lane, lanes, binding from penstock.returned
 where group_id = %(group_id)s and high > %(low)s and low < %(high)s;

-- name: restore.returned_members
update penstock.returned set members = %(members)s where id = %(id)s;

-- name: restore.others
-- Events of a stretch that were there before.
select "offset", {{bucket()}}::int as bucket from penstock.events
 where {{in_range()}} and "offset" <> all (%(restored)s::bigint[]) order by "offset";

-- name: restore.unprune
update penstock.pruned set upto = %(upto)s where stream = %(stream)s and changes = %(changes)s;

-- name: restore.not_removed
-- What is back was not removed, and so does not count as appended.
insert into penstock.metric_removed as r (stream, events) values (%(stream)s, -%(events)s::bigint)
on conflict (stream) do update set events = r.events + excluded.events;
