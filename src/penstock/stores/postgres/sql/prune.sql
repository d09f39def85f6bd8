-- name: prune.lock
-- Whoever creates a group or counts the log waits; whoever looks or claims does not.
lock table penstock.groups, penstock.tally_mark in share row exclusive mode;

-- name: prune.steps
select distinct upto from penstock.tally_step where stream = %(stream)s and upto > %(low)s and upto < %(high)s
union
select upto from (select max(upto) as upto from penstock.tally_mark) m where upto > %(low)s and upto < %(high)s;

-- name: prune.needed
-- What a group has not finished, from the group's side: rows; ranges that came back; open leases; beyond a cursor.
with mine as materialized (
  select group_id from penstock.groups where stream = %(stream)s
)
select d."offset" from penstock.deliveries d
 where d.group_id in (select group_id from mine) and d."offset" > %(low)s and d."offset" <= %(high)s
   and (d.state in ('PENDING', 'CLAIMED')
        or (d.state = 'DEAD' and %(keep_dead)s and {{shown(d.)}}
            and (%(dead_before)s::timestamptz is null or d.dead_at > %(dead_before)s::timestamptz)))
union
select e."offset" from penstock.returned r
 cross join lateral (select "offset" from penstock.events
                      where stream = %(stream)s and "offset" > greatest(r.low, %(low)s) and "offset" <= least(r.high, %(high)s)
                        and {{in_lane(, r.)}} offset 0) e
 where r.group_id in (select group_id from mine) and r.high > %(low)s and r.low < %(high)s
union
select e."offset" from mine g
 cross join lateral (select * from penstock.open_lease o where o.group_id = g.group_id and o.offsets is null offset 0) l
 cross join lateral (select "offset" from penstock.events
                      where stream = %(stream)s and "offset" > greatest(l.low, %(low)s) and "offset" <= least(l.high, %(high)s)
                        and {{in_lane(, l.)}} offset 0) e
 where l.high > %(low)s and l.low < %(high)s
union
select e."offset" from penstock.lane l
 cross join lateral (select * from penstock.binding_span where group_id = l.group_id offset 0) b
 cross join lateral (select "offset" from penstock.events
                      where stream = %(stream)s and "offset" > greatest(l.cursor, b.low, %(low)s)
                        and "offset" <= least(b.high, %(high)s)
                        and {{in_lane(, l.)}}
                        and {{bound()}} offset 0) e
 where l.stream = %(stream)s and l.cursor < %(high)s;

-- name: prune.types
select event_type, count(*) as events, max("offset") as last from penstock.events
 where {{in_range()}} and "offset" <> all (%(kept)s::bigint[])
 group by event_type;

-- name: prune.wanted
-- How many of those that go a binding with headers wanted.
select count(*) as events from penstock.events
 where {{in_range()}} and "offset" <> all (%(kept)s::bigint[])
   and {{of_wanted_type()}} and headers @> %(headers)s::jsonb;

-- name: prune.tally_now
update penstock.tally_now n set events = n.events - c.events
  from unnest(%(types)s::text[], %(counts)s::bigint[]) as c(event_type, events)
 where n.stream = %(stream)s and n.event_type = c.event_type;

-- name: prune.tally_steps
update penstock.tally_step s set events = s.events - c.events
  from unnest(%(types)s::text[], %(counts)s::bigint[]) as c(event_type, events)
 where s.stream = %(stream)s and s.event_type = c.event_type and s.upto >= %(high)s;

-- name: prune.passed
update penstock.groups g set matched_before = g.matched_before - c.events
  from unnest(%(ids)s::int[], %(counts)s::bigint[]) as c(group_id, events) where g.group_id = c.group_id;

-- name: prune.range
select penstock.prune_range(%(stream)s, %(low)s, %(high)s, %(kept)s::bigint[], %(last)s);

-- name: prune.leases
select penstock.prune_leases(%(group_id)s, %(most)s) as removed;

-- name: prune.fingerprints
select penstock.prune_fingerprints();

-- name: prune.runs
-- Runs that ended, or were last heard of, long ago (the end of a run is its last heartbeat).
delete from penstock.runs where heartbeat_at < %(before)s;

-- name: prune.drop_steps
delete from penstock.tally_step where stream = %(stream)s and upto = any(%(marks)s::bigint[]);

-- name: prune.drop_empty
with marks as (delete from penstock.tally_mark where upto < (select max(upto) from penstock.tally_mark))
delete from penstock.tally_now where events = 0;

-- name: prune.jobs
-- What was noted of jobs that are gone, and keys of theirs.
with noted as (
  delete from penstock.job_notes n
   where n."offset" > %(low)s and n."offset" <= %(high)s
     and not exists (select 1 from penstock.events e where e."offset" = n."offset")
), cancelled as (
  delete from penstock.job_cancels n
   where n."offset" > %(low)s and n."offset" <= %(high)s
     and not exists (select 1 from penstock.events e where e."offset" = n."offset")
)
delete from penstock.job_unique u
 where (u.until_at is null or u.until_at <= clock_timestamp())
   and not exists (select 1 from penstock.events e where e.event_id = u.event_id);

-- name: prune.dead_jobs
-- How many of the jobs that go are dead.
select count(*) as jobs from penstock.deliveries
 where group_id = %(group_id)s and state = 'DEAD' and "offset" > %(low)s and "offset" <= %(high)s
   and "offset" <> all (%(kept)s::bigint[]);
