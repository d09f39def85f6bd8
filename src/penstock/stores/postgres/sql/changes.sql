-- name: changes.newest
-- The newest of everything that pages show: index look-ups, and the ends of the newest leases; and how far
-- operations are.
select case when s.is_called then s.last_value else 0 end as events,
       (select coalesce(max(id), 0) from penstock.leases) as leases,
       (select coalesce(max(ended_at), 'epoch') from (
          select ended_at from penstock.leases order by id desc limit 100) newest) as settled,
       (select coalesce(max(id), 0) from penstock.audit) as audit,
       (select coalesce(max(id), 0) from penstock.runs) as runs,
       (select coalesce(sum(moved + returned + canaries_ended + token), 0) from penstock.operations where state = 'running') as operations
  from penstock.events_offset_seq s;
