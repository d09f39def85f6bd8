-- name: problems.groups
-- What is wrong in groups, each looked at only so far: the last claim, who paused it, keys in the way, new dead letters.
select g.stream, g.group_name,
       (select max(n.claimed_at) from unnest(g.starts) with ordinality as s(start, number)
         cross join lateral (select l.claimed_at from penstock.leases l
                              where l.group_id = g.group_id and l.lanes = g.lanes and l.lane = s.number - 1
                              order by l.id desc limit 1) n) as claimed_at,
       case when g.paused then (select a.at from penstock.audit a
                                 where a.stream = g.stream and a.group_name = g.group_name and a.action = 'pause'
                                 order by a.id desc limit 1) end as paused_at,
       case when g.paused then (select a.by from penstock.audit a
                                 where a.stream = g.stream and a.group_name = g.group_name and a.action = 'pause'
                                 order by a.id desc limit 1) end as paused_by,
       case when g.ordering is null then 0 else (
         select count(*) from generate_series(0, g.lanes - 1) as s(lane)
          where exists (select 1 from penstock.deliveries d
                         where d.group_id = g.group_id and d.in_order and d.state in ('PENDING', 'CLAIMED')
                           and d.bucket >= s.lane * 256 / g.lanes and d.bucket < (s.lane + 1) * 256 / g.lanes
                        offset %(blocked)s limit 1)) end as blocked_lanes,
       (select count(*) from (
          select 1 from penstock.deliveries d
           where d.group_name = g.group_name and d.stream = g.stream and d.state = 'DEAD' and d.updated_at > %(since)s
             and d.reason is distinct from 'purged' limit %(most)s) died) as died,
       (select count(*) from (
          select 1 from (select failures from penstock.deliveries d
                          where d.group_id = g.group_id and d.state = 'PENDING' limit %(look)s) d
           where d.failures > 0) again) as retrying
  from penstock.groups g
 where {{of_group(g.)}}
 order by g.stream, g.group_name;
