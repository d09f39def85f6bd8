-- name: lease.lock
{{lease_records}}
 where l.id = :id;

-- name: lease.find
{{lease_records}}
 where l.id = :id;

-- name: lease.extend
update penstock_leases set expires_at = :expires_at, heartbeat_at = :now where id = :id
returning {{wanted_of_run}}, exists (select 1 from penstock_event_cancels c where c.group_id = penstock_leases.group_id) as cancels;
