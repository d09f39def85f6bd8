-- name: cancel.ask
insert into penstock.event_cancels (group_id, "offset", reason, by, asked_at)
select %(group_id)s, o, %(reason)s, %(by)s, %(now)s from unnest(%(offsets)s::bigint[]) as o
on conflict (group_id, "offset") do update set reason = excluded.reason, by = excluded.by, asked_at = excluded.asked_at;

-- name: cancel.of_lease
-- What is to end in a lease; a range may have offsets of other lanes between its own.
select c."offset", c.reason, c.by from penstock.leases l join penstock.event_cancels c using (group_id)
 where l.id = %(id)s
   and case when l.offsets is null then c."offset" > l.low and c."offset" <= l.high and c."offset" <> all (l.holes)
            else c."offset" = any (l.offsets) end;

-- name: cancel.groups
-- Groups with requests.
select g.stream, g.group_name from penstock.groups g
 where g.group_id = any(array(select distinct c.group_id from penstock.event_cancels c));

-- name: cancel.asked
-- The requests of a group; without an id the event is gone.
select c."offset", c.reason, c.by, e.event_id from penstock.event_cancels c
  left join penstock.events e on e."offset" = c."offset"
 where c.group_id = %(group_id)s order by c."offset";

-- name: cancel.answered
delete from penstock.event_cancels where group_id = %(group_id)s and "offset" = any(%(offsets)s::bigint[]);

-- name: cancel.forget
-- Everything above an offset is to be delivered again.
delete from penstock.event_cancels where group_id = %(group_id)s and "offset" > %(after)s;
