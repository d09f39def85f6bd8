-- name: standing.lanes
-- Every lane of a group: how far it has got, how many offsets of its stream lie ahead, and what came back to it.
select l.lane, l.cursor,
       max(0, coalesce((select max(e."offset") from penstock_events e where e.stream = l.stream), 0) - l.cursor) as behind,
       (select count(*) from penstock_returned r where r.group_id = l.group_id and r.lane = l.lane) as returned_ranges,
       (select coalesce(sum(r.members), 0) from penstock_returned r
         where r.group_id = l.group_id and r.lane = l.lane) as returned_events
  from penstock_lane l
 where l.group_id = :group_id
 order by l.lane;

-- name: standing.leases
-- The open leases of a group, the oldest first.
select o.id, o.lane, case when o.offsets is null then 'range' else 'rows' end as kind, o.members, o.low, o.high,
       o.attempts, o.claimed_by, o.claimed_at, o.expires_at
  from penstock_leases o indexed by penstock_leases_open where o.group_id = :group_id and o.outcome is null
 order by o.claimed_at, o.id limit :limit;

-- name: standing.bindings
-- Which events a group wants, and from which offset on.
select b.from_offset, b.types || '' as types, b.headers, b.created_at
  from penstock_bindings b where b.group_id = :group_id
 order by b.from_offset desc, b.id desc limit :limit;

-- name: standing.blocked
-- Keys of an ordered group that are held back: the first unfinished delivery of each, and how many wait behind it.
-- One look into an index per key.
with recursive waiting(bucket, ordering_key, n) as (
  select * from (
    select bucket, ordering_key, 1 from penstock_deliveries indexed by penstock_deliveries_turn
     where group_id = :group_id and ordering_key is not null and {{unresolved()}}
     order by bucket, ordering_key limit 1)
  union all
  select coalesce((select w.bucket from penstock_deliveries d indexed by penstock_deliveries_turn
                    where d.group_id = :group_id and d.bucket = w.bucket and d.ordering_key > w.ordering_key
                      and {{unresolved(d.)}} limit 1),
                  (select d.bucket from penstock_deliveries d indexed by penstock_deliveries_turn
                    where d.group_id = :group_id and d.bucket > w.bucket and d.ordering_key is not null
                      and {{unresolved(d.)}} order by d.bucket limit 1)),
         coalesce((select min(d.ordering_key) from penstock_deliveries d indexed by penstock_deliveries_turn
                    where d.group_id = :group_id and d.bucket = w.bucket and d.ordering_key > w.ordering_key
                      and {{unresolved(d.)}}),
                  (select d.ordering_key from penstock_deliveries d indexed by penstock_deliveries_turn
                    where d.group_id = :group_id and d.bucket > w.bucket and d.ordering_key is not null
                      and {{unresolved(d.)}} order by d.bucket, d.ordering_key limit 1)),
         w.n + 1
    from waiting w where w.ordering_key is not null and w.n < :limit
), halted(bucket, ordering_key, n) as (
  select * from (
    select bucket, ordering_key, 1 from penstock_deliveries indexed by penstock_deliveries_halted
     where :halts and group_id = :group_id and ordering_key is not null and {{halting()}}
     order by bucket, ordering_key limit 1)
  union all
  select coalesce((select w.bucket from penstock_deliveries d indexed by penstock_deliveries_halted
                    where d.group_id = :group_id and d.bucket = w.bucket and d.ordering_key > w.ordering_key
                      and {{halting(d.)}} limit 1),
                  (select d.bucket from penstock_deliveries d indexed by penstock_deliveries_halted
                    where d.group_id = :group_id and d.bucket > w.bucket and d.ordering_key is not null
                      and {{halting(d.)}} order by d.bucket limit 1)),
         coalesce((select min(d.ordering_key) from penstock_deliveries d indexed by penstock_deliveries_halted
                    where d.group_id = :group_id and d.bucket = w.bucket and d.ordering_key > w.ordering_key
                      and {{halting(d.)}}),
                  (select d.ordering_key from penstock_deliveries d indexed by penstock_deliveries_halted
                    where d.group_id = :group_id and d.bucket > w.bucket and d.ordering_key is not null
                      and {{halting(d.)}} order by d.bucket, d.ordering_key limit 1)),
         w.n + 1
    from halted w where w.ordering_key is not null and w.n < :limit
), heads as (
  select k.bucket, k.ordering_key, min(
           coalesce((select min(d."offset") from penstock_deliveries d indexed by penstock_deliveries_turn
                      where d.group_id = :group_id and d.bucket = k.bucket and d.ordering_key = k.ordering_key
                        and {{unresolved(d.)}}), 9223372036854775807),
           coalesce((select min(d."offset") from penstock_deliveries d indexed by penstock_deliveries_halted
                      where :halts and d.group_id = :group_id and d.bucket = k.bucket
                        and d.ordering_key = k.ordering_key and {{halting(d.)}}), 9223372036854775807)) as "offset"
    from (select bucket, ordering_key from waiting union select bucket, ordering_key from halted) k
   where k.ordering_key is not null
)
select h.ordering_key as key, d.bucket * g.lanes / 256 as lane, d."offset", d.event_id, d.event_type, d.state,
       d.reason, d.attempts, d.failures, d.available_at, d.error_code, d.last_error,
       (select count(*) from (
          select 1 from penstock_deliveries b indexed by penstock_deliveries_turn
           where b.group_id = d.group_id and b.bucket = h.bucket and b.ordering_key = h.ordering_key
             and {{unresolved(b.)}} and b."offset" > h."offset" limit :most)) as waiting
  from heads h
 cross join penstock_deliveries d on d.group_id = :group_id and d."offset" = h."offset"
 cross join penstock_groups g on g.group_id = d.group_id
 order by waiting desc, d."offset" limit :limit;
