-- name: guard.deaths
-- The last events that took their process down, and the oldest lease among those deaths; a resume begins anew. An event
-- that did so before is known to be dangerous, and proves nothing about the deployment.
select count(*)::int as deaths, min(lease) as since from (
  select "offset", max(lease) as lease from (
    select "offset", lease from penstock.attempt_log l
     where group_id = %(group_id)s and outcome <> 'expired' and error_code = any(%(codes)s::text[])
       and ended_at > coalesce((select max(a.at) from penstock.audit a join penstock.groups g
                                    on g.stream = a.stream and g.group_name = a.group_name
                                 where g.group_id = %(group_id)s and a.action = 'resume'), '-infinity')
       and not exists (select 1 from penstock.attempt_log e
                        where e.group_id = %(group_id)s and e."offset" = l."offset" and e.id < l.id
                          and e.outcome <> 'expired' and e.error_code = any(%(codes)s::text[]))
     order by id desc limit 10 * %(most)s) newest
   group by "offset" order by max(lease) desc limit %(most)s) deaths;

-- name: guard.success
-- A lease since then that published something.
select 1 from penstock.leases
 where id >= %(since)s and group_id = %(group_id)s and outcome = 'settled' and answer[1] > 0 limit 1;
