-- name: reap.groups
-- The groups, of all or of those that are named, that have an expired lease.
select g.stream, g.group_name from penstock_groups g
 where (:streams is null or exists (select 1 from json_each(:streams) s join json_each(:names) n on n.key = s.key
                                     where s.value = g.stream and n.value = g.group_name))
   and exists (select 1 from penstock_leases l
                where l.group_id = g.group_id and l.outcome is null and l.expires_at <= :now)
 order by g.stream, g.group_name;

-- name: reap.expired
select id from penstock_leases where group_id = :group_id and outcome is null and expires_at <= :now order by id;

-- name: reap.lock
-- No holder can be in the middle of its settle: one transaction writes at a time.
{{lease_records}}
 where l.id in (select value from json_each(:ids)) and l.outcome is null and l.expires_at <= :now
 order by l.id;
