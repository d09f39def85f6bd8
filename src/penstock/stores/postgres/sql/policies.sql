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
select stream from penstock.retention where next_at <= %(now)s order by next_at limit %(most)s;

-- name: policy.turn
-- A policy that is due, for whoever comes first; nobody waits for it.
select * from penstock.retention where stream = %(stream)s and next_at <= %(now)s for update skip locked;

-- name: policy.went
update penstock.retention set swept = %(swept)s, passed_at = %(passed_at)s, next_at = %(next_at)s where stream = %(stream)s;

-- name: policy.archived
-- Up to where a stream is archived in a place.
select max(high) as upto from penstock.archives where stream = %(stream)s and place = %(place)s and state = 'done';

-- name: policy.finished
-- How far every group has finished everything that has no row of its own, and which group is the last.
select g.group_name, least(c.upto, r.upto, o.upto) as upto
  from penstock.groups g
 cross join lateral (select min(l.cursor) as upto from penstock.lane l where l.group_id = g.group_id) c
 cross join lateral (select min(r.low) as upto from penstock.returned r where r.group_id = g.group_id) r
 cross join lateral (select min(o.low) as upto from penstock.open_lease o
                      where o.group_id = g.group_id and o.offsets is null) o
 where g.stream = %(stream)s
 order by 2 limit 1;

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
