-- name: policy.set
insert into penstock.retention as r (stream, keep, keep_dead, archive, next_at, by, set_at)
values (%(stream)s, %(keep)s, %(keep_dead)s, %(archive)s, %(now)s, %(by)s, %(now)s)
on conflict (stream) do update
   set keep = excluded.keep, keep_dead = excluded.keep_dead, archive = excluded.archive, by = excluded.by,
       set_at = excluded.set_at, next_at = excluded.next_at, passed_at = null;

-- name: policy.drop
delete from penstock.retention where stream = %(stream)s;

-- name: policy.find
select * from penstock.retention where stream = %(stream)s;

-- name: policy.every
select * from penstock.retention order by stream;

-- name: policy.due
-- Those whose time has come, or was set by a clock that was wrong.
select stream from (
  select stream, next_at from penstock.retention where next_at <= %(now)s
  union all
  select stream, next_at from penstock.retention where next_at > %(latest)s) due
 order by next_at limit %(most)s;

-- name: policy.turn
-- A policy that is due, for whoever comes first; nobody waits for it.
select * from penstock.retention where stream = %(stream)s and (next_at <= %(now)s or next_at > %(latest)s) for update skip locked;

-- name: policy.went
update penstock.retention set swept = %(swept)s, passed_at = %(passed_at)s, next_at = %(next_at)s where stream = %(stream)s;

-- name: policy.archived
-- Up to where a stream is archived in a place.
select max(high) as upto from penstock.archives where stream = %(stream)s and place = %(place)s and state = 'done';

-- name: policy.waits
-- Up to where every group has finished what has no row of its own, in a stretch, and which group has not got further: what it
-- has not claimed yet, ranges that came back, and open leases.
with mine as materialized (
  select group_id, group_name from penstock.groups where stream = %(stream)s
), lanes as materialized (
  select group_id, lane, lanes, cursor from penstock.lane where stream = %(stream)s
)
select group_name, upto from (
  select g.group_name, k."offset" - 1 as upto from mine g
   cross join lateral (
         select e."offset"
           from (select "offset", event_type, headers, {{bucket()}} as bucket from penstock.events
                  where stream = %(stream)s and "offset" <= %(high)s
                    and "offset" > greatest(%(low)s, (select min(l.cursor) from lanes l where l.group_id = g.group_id))
                  order by stream, "offset") e
           join lanes l on l.group_id = g.group_id and e.bucket * l.lanes / 256 = l.lane and e."offset" > l.cursor
           join penstock.binding_span b on b.group_id = g.group_id and e."offset" > b.low and e."offset" <= b.high
          where {{bound(e.)}}
          order by e."offset" limit 1) k
  union all
  select g.group_name, r.low from mine g join penstock.returned r on r.group_id = g.group_id
   where r.low < %(high)s and r.high > %(low)s
  union all
  select g.group_name, o.low from mine g
   cross join lateral (select * from penstock.open_lease l where l.group_id = g.group_id and l.offsets is null offset 0) o
   where o.low < %(high)s and o.high > %(low)s) unfinished
 order by upto limit 1;

-- name: policy.holds
-- Restored events that are to stay.
select low, high, until_at from penstock.holds
 where stream = %(stream)s and until_at > %(now)s order by low;

-- name: policy.held_leases
-- Leases that the lines of an attempt log name.
select distinct a.lease as id from penstock.attempt_log a
 where a.group_id = %(group_id)s and a."offset" > %(low)s and a."offset" <= %(high)s
   and a."offset" <> all (%(kept)s::bigint[]) and a.lease is not null;

-- name: policy.remove
select penstock.expire_events(%(stream)s, %(low)s, %(high)s, %(kept)s::bigint[], %(now)s);

-- name: policy.leases
select penstock.expire_leases(%(group_id)s, %(ids)s::bigint[], %(low)s, %(high)s);
