-- name: lease.lock
{{lease_records}}
 where l.id = %(id)s for update of l;

-- name: lease.find
{{lease_records}} where l.id = %(id)s;

-- name: lease.extend
update penstock.leases set expires_at = %(expires_at)s, heartbeat_at = %(now)s where id = %(id)s
returning {{wanted_of_run}}, exists (select 1 from penstock.event_cancels c where c.group_id = leases.group_id) as cancels;
