-- name: guard.deaths
-- The last events that took their process down, newest first, and the leases they were in; a resume begins anew. An
-- event that did so before is known to be dangerous, and proves nothing about the deployment.
select l.id as lease, l.claimed_at, l.expires_at, d.error_code = 'lease_expired' as expired
  from (
    select "offset", lease, error_code from penstock.attempt_log l
     where group_id = %(group_id)s and outcome <> 'expired' and error_code = any(%(codes)s::text[])
       and ended_at > coalesce((select max(a.at) from penstock.audit a join penstock.groups g
                                    on g.stream = a.stream and g.group_name = a.group_name
                                 where g.group_id = %(group_id)s and a.action = 'resume'), '-infinity')
       and not exists (select 1 from penstock.attempt_log e
                        where e.group_id = %(group_id)s and e."offset" = l."offset" and e.id < l.id
                          and e.outcome <> 'expired' and e.error_code = any(%(codes)s::text[]))
     order by id desc limit 10 * %(most)s) d
  join penstock.leases l on l.id = d.lease
 order by l.claimed_at desc, l.id desc;

-- name: guard.success
-- A lease since then that published something.
select 1 from penstock.leases
 where id >= %(since)s and group_id = %(group_id)s and outcome = 'settled' and answer[1] > 0 limit 1;
