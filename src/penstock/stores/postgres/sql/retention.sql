-- name: retention.due
-- Groups of jobs that have something to remove, as far as an index tells. A stream with another group is left alone.
select g.stream, t.keep_finished, t.keep_dead
  from penstock.job_types t
 cross join generate_series(0, 9) as p(priority)
  join penstock.groups g on g.stream = 'jobs:' || t.queue || ':' || p.priority || ':' || t.job_type and g.group_name = 'workers'
  left join penstock.job_retention r on r.group_id = g.group_id
 cross join lateral (
       select %(now)s::timestamptz
                - make_interval(secs => case when t.keep_finished < %(least)s then %(least)s else t.keep_finished end) as finished_before,
              %(now)s::timestamptz
                - make_interval(secs => case when t.keep_dead < %(least)s then %(least)s else t.keep_dead end) as dead_before,
              coalesce(r.swept, 0) as swept
              offset 0) k
  left join lateral (select ended_at, high from penstock.leases
                      where group_id = g.group_id and lanes = 1 and lane = 0 and fresh and high > k.swept
                      order by high limit 1) f on true
 where (t.keep_finished is not null or t.keep_dead is not null)
   and ((f.ended_at <= k.finished_before
         and not exists (select 1 from penstock.returned b where b.group_id = g.group_id and b.low <= k.swept)
         and not exists (select 1 from penstock.leases a
                          where a.group_id = g.group_id and a.offsets is null and not a.fresh and a.high > k.swept
                            and a.high <= case when g.rewinds > 0 then 9223372036854775807 else f.high end
                            and a.low <= k.swept and (a.ended_at <= k.finished_before) is not true)
         and not exists (select 1 from (select event_id from penstock.events
                                         where stream = g.stream and "offset" > k.swept order by "offset" limit 1) e
                          where {{key_is_held(e.)}}))
        or (select d.published_at from penstock.deliveries d
             where d.group_id = g.group_id and d.state = 'PUBLISHED' and d.stream like 'jobs:%%'
             order by d.published_at limit 1) <= k.finished_before
        or (select d.dead_at from penstock.deliveries d
             where d.group_id = g.group_id and d.state = 'DEAD' and d.stream like 'jobs:%%'
             order by d.dead_at limit 1) <= k.dead_before
        or coalesce(r.rewinds, 0) <> g.rewinds)
   and not exists (select 1 from penstock.groups o where o.stream = g.stream and o.group_id <> g.group_id)
 order by g.stream;

-- name: retention.turn
-- How far the group was swept, for whoever comes first; nobody waits for it.
select swept, rewinds from penstock.job_retention where group_id = %(group_id)s for update skip locked;

-- name: retention.begin
insert into penstock.job_retention (group_id) values (%(group_id)s) on conflict do nothing;

-- name: retention.reach
-- Up to where every range has ended before a time: from the fresh leases, those claimed again, and what waits.
-- (A range that was claimed again lies within the fresh lease it came from, unless the group was rewound.)
with fresh as materialized (
  select f.low, f.high, f.ended_at <= %(finished_before)s::timestamptz as over from penstock.leases f
   where f.group_id = %(group_id)s and f.lanes = 1 and f.lane = 0 and f.fresh and f.high > %(swept)s
   order by f.high limit %(most)s
), reach as materialized (
  select coalesce((select low from fresh where over is not true order by high limit 1),
                  (select max(high) from fresh), %(swept)s) as upto,
         coalesce((select max(high) from fresh), %(swept)s) as last
)
select least(reach.upto,
             (select min(r.low) from penstock.returned r where r.group_id = %(group_id)s),
             (select min(f.low) from penstock.leases f
               where f.group_id = %(group_id)s and f.offsets is null and not f.fresh and f.high > %(swept)s
                 and f.high <= case when %(rewound)s then 9223372036854775807 else reach.last end
                 and (f.ended_at <= %(finished_before)s::timestamptz) is not true)) as upto
  from reach;

-- name: retention.held
-- The first job in a stretch whose unique key is still its own.
select min(e."offset") as "offset" from penstock.events e
 where {{in_range(e.)}} and {{key_is_held(e.)}};

-- name: retention.finished
-- Finished jobs in a stretch: those without a row, and those whose row says so.
select e."offset", e.event_type, false as dead
  from penstock.events e left join penstock.deliveries d on d.group_id = %(group_id)s and d."offset" = e."offset"
 where {{in_range(e.)}} and (d.state is null or (d.state = 'PUBLISHED' and d.published_at <= %(finished_before)s::timestamptz));

-- name: retention.rows
-- Jobs with a row that finished, or died, before a time.
select "offset", event_type, state = 'DEAD' as dead from (
  (select d."offset", d.event_type, d.state from penstock.deliveries d
    where d.group_id = %(group_id)s and d.state = 'PUBLISHED' and d.stream like 'jobs:%%'
      and d.published_at <= %(finished_before)s::timestamptz
      and not {{key_is_held(d.)}}
    order by d.published_at limit %(most)s)
  union all
  (select d."offset", d.event_type, d.state from penstock.deliveries d
    where d.group_id = %(group_id)s and d.state = 'DEAD' and d.stream like 'jobs:%%'
      and d.dead_at <= %(dead_before)s::timestamptz
      and not {{key_is_held(d.)}}
    order by d.dead_at limit %(most)s)) ended
 order by "offset" limit %(most)s;

-- name: retention.remove
select penstock.remove_jobs(%(group_id)s, %(gone)s::bigint[], %(low)s, %(high)s);

-- name: retention.swept
update penstock.job_retention set swept = %(swept)s, rewinds = %(rewinds)s where group_id = %(group_id)s;

-- name: jobs.gone
-- How many jobs of a group were removed.
insert into penstock.job_totals as t (group_id, completed, exhausted) values (%(group_id)s, %(completed)s, %(exhausted)s)
on conflict (group_id) do update
   set completed = t.completed + excluded.completed, exhausted = t.exhausted + excluded.exhausted;
