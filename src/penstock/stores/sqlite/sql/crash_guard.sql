-- name: guard.deaths
-- The last events that took their process down, newest first, and the leases they were in; a resume begins anew. An
-- event that did so before is known to be dangerous, and proves nothing about the deployment.
select l.id as lease, l.claimed_at, l.expires_at, d.error_code = 'lease_expired' as expired
  from (
    select "offset", lease, error_code from penstock_attempt_log l
     where group_id = :group_id and outcome <> 'expired' and error_code in (select value from json_each(:codes))
       and ended_at > coalesce((select max(a.at) from penstock_audit a join penstock_groups g
                                    on g.stream = a.stream and g.group_name = a.group_name
                                 where g.group_id = :group_id and a.action = 'resume'), 0)
       and not exists (select 1 from penstock_attempt_log e
                        where e.group_id = :group_id and e."offset" = l."offset" and e.id < l.id
                          and e.outcome <> 'expired' and e.error_code in (select value from json_each(:codes)))
     order by id desc limit 10 * :most) d
  join penstock_leases l on l.id = d.lease
 order by l.claimed_at desc, l.id desc;

-- name: guard.success
-- A lease since then that published something.
select 1 from penstock_leases
 where id >= :since and group_id = :group_id and outcome = 'settled' and json_extract(answer, '$[0]') > 0 limit 1;
