-- name: stats.now
-- Events per stream and type up to an offset behind the last mark: the counts at the mark, and a short tail.
with mark as materialized (select coalesce(max(upto), 0) as upto from penstock.tally_mark)
select stream, event_type, sum(events)::bigint as events from (
  select stream, event_type, events from penstock.tally_now where %(stream)s::text is null or stream = %(stream)s
  union all
  select stream, event_type, count(*) from (
    select e.stream, e.event_type from penstock.events e
     where e."offset" > (select upto from mark) and e."offset" <= %(upto)s
       and (%(stream)s::text is null or e.stream = %(stream)s)) tail
   group by stream, event_type) counted
 group by stream, event_type;

-- name: stats.at
-- Events per type of streams up to offsets. Each is counted from the step below it, or, where that is nearer
-- (`relative`), from the offset asked for before it.
with asked as (
  select stream, "offset", coalesce(lag("offset") over (partition by stream order by "offset"), 0) as before
    from unnest(%(streams)s::text[], %(offsets)s::bigint[]) as a(stream, "offset")
), placed as materialized (
  select a.*, coalesce((select s.upto from penstock.tally_step s where s.stream = a.stream and s.upto <= a."offset"
                         order by s.upto desc limit 1), 0) as base from asked a
)
select p.stream, p."offset", p.before > p.base as relative, c.event_type, c.events
  from placed p
  left join lateral (
    select event_type, sum(events)::bigint as events from (
      select s.event_type, s.events from penstock.tally_step s
       where s.stream = p.stream and s.upto = p.base and p.before <= p.base
      union all
      select e.event_type, 1 from (select event_type from penstock.events
                                    where stream = p.stream and "offset" > greatest(p.before, p.base)
                                      and "offset" <= p."offset" offset 0) e) counted
     group by event_type) c on true
 order by p.stream, p."offset";

-- name: stats.lanes
-- Every lane of groups: how far it has got, and how many events it has passed.
select g.group_id, (l.number - 1)::int as lane, coalesce(c.high, l.start) as cursor, c.total
  from penstock.groups g
 cross join lateral unnest(g.starts) with ordinality as l(start, number)
  left join lateral (select high, total from penstock.leases
                      where group_id = g.group_id and lanes = g.lanes and lane = l.number - 1 and fresh
                      order by high desc limit 1) c on true
 where {{of_group(g.)}}
 order by g.group_id, lane;

-- name: stats.rows
-- Exception rows by state, split at the cursor of their lane; the first of each kind. The ids tell the planner how many
-- rows there are.
with cursors as materialized (
  select group_id, lanes, array_agg(cursor order by lane) as of_lane from penstock.lane
   where {{of_group()}} group by group_id, lanes
)
select d.group_id, d.state, d."offset" > c.of_lane[d.bucket * c.lanes / 256 + 1] as ahead, not ({{shown(d.)}}) as hidden,
       count(*) as rows, min(d."offset") as first
  from cursors c join penstock.deliveries d on d.group_id = c.group_id and d.group_id = any(%(ids)s::int[])
 group by 1, 2, 3, 4;

-- name: stats.groups
-- What waits as ranges, what is in work, and the rate, from the newest leases of every lane: over a minute, or over the
-- time that as many leases as are looked at reach back.
select g.group_id, coalesce(r.members, 0) as returned, o.members as open, o.leases, n.rate
  from penstock.groups g
  left join (select group_id, sum(members) as members from penstock.returned group by group_id) r
    on r.group_id = g.group_id
 cross join lateral (
       select coalesce(sum(l.members) filter (where l.offsets is null), 0) as members, count(*) as leases
         from penstock.open_lease l where l.group_id = g.group_id) o
 cross join lateral (
       select coalesce(sum(lane.rate), 0)::double precision as rate from generate_series(0, g.lanes - 1) as s(lane)
        cross join lateral (
              select sum(answer[1]) / case when count(*) = %(looked)s
                       then greatest(1, extract(epoch from %(now)s::timestamptz - min(ended_at))) else 60 end as rate
                from (select answer, ended_at from penstock.leases
                       where group_id = g.group_id and lanes = g.lanes and lane = s.lane
                       order by id desc limit %(looked)s) l
               where ended_at > %(now)s::timestamptz - interval '60 seconds') lane) n
 where {{of_group(g.)}};

-- name: stats.gone
-- Jobs that were removed, per group.
select t.group_id, t.completed, t.exhausted from penstock.job_totals t join penstock.groups g on g.group_id = t.group_id
 where {{of_group(g.)}};

-- name: stats.created
select "offset", created_at from penstock.events where "offset" = any(%(offsets)s::bigint[]);

-- name: stats.oldest_held
-- The oldest event of groups in a returned range or in an open lease: of each lane's lowest, and of each lease.
select group_id, min(created_at) as created_at from (
  select r.group_id, (
         select e.created_at from penstock.events e
          where e.stream = g.stream and e."offset" > r.low and e."offset" <= r.high
            and {{in_lane(e., r.)}}
            and {{bound(e.)}}
            and not {{has_row(r.group_id, e.)}}
          order by e."offset" limit 1) as created_at
    from (select distinct on (group_id, lanes, lane) * from penstock.returned
           where group_id = any(%(ids)s::int[]) and members > 0 order by group_id, lanes, lane, low) r
    join penstock.groups g on g.group_id = r.group_id
    join penstock.bindings b on b.id = r.binding
  union all
  select l.group_id, (
         select e.created_at from penstock.events e
          where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
            and {{in_lane(e., l.)}}
            and {{bound(e.)}} and e."offset" <> all (l.holes)
          order by e."offset" limit 1)
    from unnest(%(ids)s::int[]) as i(group_id)
   cross join lateral (select * from penstock.open_lease o where o.group_id = i.group_id and o.offsets is null offset 0) l
    join penstock.groups g on g.group_id = l.group_id
    join penstock.bindings b on b.id = l.binding) held
 group by group_id;

-- name: stats.oldest_beyond
-- The first event a group wants beyond the cursors of its lanes, as far as one look reaches.
select g.group_id, (
       select e.created_at from (
         select "offset", created_at, event_type, headers, {{bucket()}} as bucket
           from penstock.events
          where stream = g.stream and "offset" > greatest(g.after, b.low) and "offset" <= least(b.high, %(upto)s::bigint)
          order by "offset" limit %(scan)s) e
        where e."offset" > (g.cursors ->> (e.bucket * g.lanes / 256)::int)::bigint
          and {{bound(e.)}}
          and not {{has_row(g.group_id, e.)}}
        order by e."offset" limit 1) as created_at
  from jsonb_to_recordset(%(rows)s::jsonb) as g(group_id int, stream text, lanes int, after bigint, cursors jsonb)
 cross join lateral (select * from penstock.binding_span where group_id = g.group_id offset 0) b;

-- name: stats.beyond
-- Wanted events beyond the cursors of a group that filters by header, as far as one look reaches.
select count(*) filter (where wanted) as wanted, count(*) as looked from (
  select {{bound(e.)}} and e."offset" > l.cursor as wanted
    from (select * from penstock.events
           where stream = %(stream)s and "offset" > (select min(cursor) from penstock.lane where group_id = %(group_id)s)
             and "offset" <= %(upto)s order by "offset" limit %(most)s) e
    join penstock.lane l on l.group_id = %(group_id)s
                         and {{in_lane(e., l.)}}
    join penstock.binding_span b on b.group_id = %(group_id)s and e."offset" > b.low and e."offset" <= b.high) looked;
