-- name: problems.groups
-- What is wrong in groups, each looked at only so far: the last claim, who paused it, keys in the way, new dead letters.
select g.group_id, g.stream, g.group_name,
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
             and {{shown(d.)}} order by d.updated_at desc limit %(most)s) died) as died,
       (select count(*) from (
          select 1 from (select d.failures from penstock.deliveries d
                          where d.group_id = g.group_id and d.state = 'PENDING'
                          order by d.available_at limit %(look)s) d
           where d.failures > 0) again) as retrying
  from penstock.groups g
 where {{of_group(g.)}}
 order by g.stream, g.group_name;

-- name: problems.rows
-- Exception rows by state, split at the cursor of their lane, each kind counted up to a limit: those above the lowest
-- cursor of a group, and below it what waits, is dead, and is in work.
with lanes as materialized (
  select group_id, lane, lanes, cursor from penstock.lane
   where {{of_group()}}
), low as materialized (select group_id, min(cursor) as cursor from lanes group by group_id)
select l.group_id, x.state, x.ahead, x.hidden, x.rows, x.first from low l cross join lateral (
  select d.state, d."offset" > c.cursor as ahead, not ({{shown(d.)}}) as hidden, count(*) as rows,
         min(d."offset") as first
    from (select state, reason, bucket, "offset" from penstock.deliveries
           where group_id = l.group_id and "offset" > l.cursor order by "offset" limit %(most)s) d
    join lanes c on c.group_id = l.group_id and c.lane = d.bucket * c.lanes / 256
   group by 1, 2, 3
  union all
  select 'PENDING', false, false, count(*), min("offset")
    from (select "offset" from penstock.deliveries
           where group_id = l.group_id and state = 'PENDING' and "offset" <= l.cursor
           order by available_at limit %(most)s) d
  union all
  select 'DEAD', false, not ({{shown(d.)}}), count(*), min(d."offset")
    from (select state, reason, "offset" from penstock.deliveries
           where group_id = l.group_id and state = 'DEAD' and "offset" <= l.cursor
           order by "offset" limit %(most)s) d
   group by 3
  union all
  select 'CLAIMED', false, false, count(*), min(m."offset")
    from penstock.open_lease o cross join lateral unnest(o.offsets) as m("offset")
   where o.group_id = l.group_id and o.offsets is not null and m."offset" <= l.cursor) x
 where x.rows > 0;
