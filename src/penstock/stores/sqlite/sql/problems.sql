-- name: problems.groups
-- What is wrong in groups, each looked at only so far: the last claim, who paused it, keys in the way, new dead letters.
select g.group_id, g.stream, g.group_name,
       (select max(l.claimed_at) from json_each(g.starts) s
         cross join penstock_leases l on l.id = (
               select max(x.id) from penstock_leases x
                where x.group_id = g.group_id and x.lanes = g.lanes and x.lane = s.key)) as claimed_at,
       case when g.paused then (select a.at from penstock_audit a
                                 where a.stream = g.stream and a.group_name = g.group_name and a.action = 'pause'
                                 order by a.id desc limit 1) end as paused_at,
       case when g.paused then (select a."by" from penstock_audit a
                                 where a.stream = g.stream and a.group_name = g.group_name and a.action = 'pause'
                                 order by a.id desc limit 1) end as paused_by,
       case when g.ordering is null then 0 else (
         select count(*) from json_each(g.starts) s
          where exists (select 1 from penstock_deliveries d indexed by penstock_deliveries_turn
                         where d.group_id = g.group_id and {{unresolved(d.)}}
                           and d.bucket >= s.key * 256 / g.lanes and d.bucket < (s.key + 1) * 256 / g.lanes
                         limit 1 offset :blocked)) end as blocked_lanes,
       (select count(*) from (
          select 1 from penstock_deliveries d indexed by penstock_deliveries_dead
           where d.group_name = g.group_name and d.stream = g.stream and d.state = 'DEAD' and d.updated_at > :since
             and {{shown(d.)}} order by d.updated_at desc limit :most)) as died,
       (select count(*) from (
          select 1 from (select failures from penstock_deliveries d
                          where d.group_id = g.group_id and d.state = 'PENDING' limit :look) d
           where d.failures > 0)) as retrying
  from penstock_groups g
 where {{of_group(g.)}}
 order by g.stream, g.group_name;

-- name: problems.rows
-- Exception rows by state, split at the cursor of their lane; of each state of a group the first ones, up to a limit.
with lanes as materialized (
  select group_id, lane, lanes, cursor from penstock_lane
   where {{of_group()}}
)
select d.group_id, d.state, d."offset" > l.cursor as ahead, not ({{shown(d.)}}) as hidden, count(*) as rows,
       min(d."offset") as first
  from (select distinct group_id from lanes) g
 cross join (select 'PENDING' as state union all select 'CLAIMED' union all select 'DEAD' union all select 'PUBLISHED') s
 cross join penstock_deliveries d on d.group_id = g.group_id and d.state = s.state and d."offset" <= coalesce((
         select m."offset" from penstock_deliveries m indexed by penstock_deliveries_state
          where m.group_id = g.group_id and m.state = s.state order by m."offset" limit 1 offset :most - 1),
         9223372036854775807)
  join lanes l on l.group_id = d.group_id and l.lane = d.bucket * l.lanes / 256
 group by 1, 2, 3, 4;
