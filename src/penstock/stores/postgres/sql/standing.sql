-- name: standing.lanes
-- Every lane of a group: how far it has got, how many offsets of its stream lie ahead, and what came back to it.
select l.lane::int, l.cursor,
       greatest(0, coalesce((select e."offset" from penstock.events e where e.stream = l.stream
                              order by e."offset" desc limit 1), 0) - l.cursor) as behind,
       coalesce(r.ranges, 0) as returned_ranges, coalesce(r.events, 0) as returned_events
  from penstock.lane l
  left join (select lane, count(*) as ranges, sum(members)::bigint as events from penstock.returned
              where group_id = %(group_id)s group by lane) r on r.lane = l.lane
 where l.group_id = %(group_id)s
 order by l.lane;

-- name: standing.leases
-- The open leases of a group, the oldest first.
select o.id, o.lane::int, case when o.offsets is null then 'range' else 'rows' end as kind, o.members, o.low, o.high,
       o.attempts, o.claimed_by, o.claimed_at, o.expires_at
  from penstock.open_lease o where o.group_id = %(group_id)s
 order by o.claimed_at, o.id limit %(limit)s;

-- name: standing.bindings
-- Which events a group wants, and from which offset on.
select b.from_offset, to_json(b.types)::text as types, b.headers::text as headers, b.created_at
  from penstock.bindings b where b.group_id = %(group_id)s
 order by b.from_offset desc, b.id desc limit %(limit)s;

-- name: standing.blocked
-- Keys of an ordered group that are held back: the first unfinished delivery of each, and how many wait behind it.
-- One look into an index per key.
with recursive waiting as (
  (select bucket, ordering_key, "offset", 1 as n from penstock.deliveries
    where group_id = %(group_id)s and ordering_key is not null and {{unresolved()}}
    order by bucket, ordering_key, "offset" limit 1)
  union all
  select k.bucket, k.ordering_key, k."offset", w.n + 1 from waiting w cross join lateral (
    select bucket, ordering_key, "offset" from penstock.deliveries
     where group_id = %(group_id)s and {{unresolved()}} and (bucket, ordering_key) > (w.bucket, w.ordering_key)
     order by bucket, ordering_key, "offset" limit 1) k
   where w.n < %(limit)s
), halted as (
  (select bucket, ordering_key, "offset", 1 as n from penstock.deliveries
    where %(halts)s and group_id = %(group_id)s and ordering_key is not null and {{halting()}}
    order by bucket, ordering_key, "offset" limit 1)
  union all
  select k.bucket, k.ordering_key, k."offset", w.n + 1 from halted w cross join lateral (
    select bucket, ordering_key, "offset" from penstock.deliveries
     where group_id = %(group_id)s and {{halting()}} and (bucket, ordering_key) > (w.bucket, w.ordering_key)
     order by bucket, ordering_key, "offset" limit 1) k
   where w.n < %(limit)s
), heads as (
  select bucket, ordering_key, min("offset") as "offset"
    from (select * from waiting union all select * from halted) held group by bucket, ordering_key
)
select h.ordering_key as key, (d.bucket * g.lanes / 256)::int as lane, d."offset", d.event_id, d.event_type, d.state,
       d.reason, d.attempts, d.failures, d.available_at, d.error_code, d.last_error,
       (select count(*) from (
          select 1 from penstock.deliveries b
           where b.group_id = d.group_id and b.bucket = h.bucket and b.ordering_key = h.ordering_key
             and {{unresolved(b.)}} and b."offset" > h."offset" limit %(most)s) behind) as waiting
  from heads h
  join penstock.deliveries d on d.group_id = %(group_id)s and d."offset" = h."offset"
  join penstock.groups g on g.group_id = d.group_id
 order by waiting desc, d."offset" limit %(limit)s;
