-- name: changes.newest
-- The newest of everything that pages show: index look-ups, and the ends of the newest leases; and how far
-- operations are.
select (select coalesce(max("offset"), 0) from penstock_events) as events,
       (select coalesce(max(id), 0) from penstock_leases) as leases,
       (select coalesce(max(ended), 0) from (
          select ended_at as ended from penstock_leases order by id desc limit 100)) as settled,
       (select coalesce(max(id), 0) from penstock_audit) as audit,
       (select coalesce(max(id), 0) from penstock_runs) as runs,
       (select coalesce(sum(moved + returned + canaries_ended + token), 0) from penstock_operations where state = 'running') as operations;
