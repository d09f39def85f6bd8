-- name: stats.now
-- Events per stream and type up to an offset behind the last mark: the counts at the mark, and a short tail.
select stream, event_type, sum(events) as events from (
  select stream, event_type, events from penstock_tally_now where :stream is null
  union all
  select stream, event_type, events from penstock_tally_now where stream = :stream
  union all
  select stream, event_type, count(*) from penstock_events not indexed
   where :stream is null and "offset" > (select coalesce(max(upto), 0) from penstock_tally_mark) and "offset" <= :upto
   group by stream, event_type
  union all
  select stream, event_type, count(*) from penstock_events indexed by penstock_events_stream
   where stream = :stream and "offset" > (select coalesce(max(upto), 0) from penstock_tally_mark) and "offset" <= :upto
   group by stream, event_type) counted
 group by stream, event_type;

-- name: stats.at
-- Events per type of streams up to offsets. Each is counted from the step below it, or, where that is nearer
-- (`relative`), from the offset asked for before it.
with asked as materialized (
  select s.value as stream, o.value as "offset",
         coalesce(lag(o.value) over (partition by s.value order by o.value), 0) as before
    from json_each(:streams) s cross join json_each(:offsets) o on o.key = s.key
), placed as materialized (
  select a.stream, a."offset", a.before, coalesce((select max(s.upto) from penstock_tally_step s
                         where s.stream = a.stream and s.upto <= a."offset"), 0) as base from asked a
)
select stream, "offset", relative, event_type, sum(events) as events from (
  select p.stream, p."offset", p.before > p.base as relative, null as event_type, 0 as events from placed p
  union all
  select p.stream, p."offset", p.before > p.base, s.event_type, s.events
    from placed p cross join penstock_tally_step s on s.stream = p.stream and s.upto = p.base
   where p.before <= p.base
  union all
  select p.stream, p."offset", p.before > p.base, e.event_type, 1
    from placed p cross join penstock_events e indexed by penstock_events_stream
      on e.stream = p.stream and e."offset" > max(p.before, p.base) and e."offset" <= p."offset") counted
 group by stream, "offset", relative, event_type order by stream, "offset";

-- name: stats.lanes
-- Every lane of groups: how far it has got, and how many events it has passed.
select g.group_id, s.key as lane,
       coalesce((select c.high from penstock_leases c
                  {{cursor_lease(g., s.key)}}), s.value) as cursor,
       (select c.total from penstock_leases c
         {{cursor_lease(g., s.key)}}) as total
  from penstock_groups g cross join json_each(g.starts) s
 where {{of_group(g.)}}
 order by g.group_id, lane;

-- name: stats.rows
-- Exception rows by state, split at the cursor of their lane; the first of each kind.
with lanes as materialized (
  select group_id, lane, lanes, cursor from penstock_lane
   where {{of_group()}}
)
select d.group_id, d.state, d."offset" > l.cursor as ahead, not ({{shown(d.)}}) as hidden, count(*) as rows,
       min(d."offset") as first
  from (select distinct group_id from lanes) g
 cross join penstock_deliveries d on d.group_id = g.group_id
  join lanes l on l.group_id = d.group_id and l.lane = d.bucket * l.lanes / 256
 group by 1, 2, 3, 4;

-- name: stats.groups
-- What waits as ranges, what is in work, and the rate, from the newest leases of every lane: over a minute, or over the
-- time that as many leases as are looked at reach back.
select g.group_id,
       (select coalesce(sum(r.members), 0) from penstock_returned r where r.group_id = g.group_id) as returned,
       (select coalesce(sum(l.members), 0) from penstock_leases l
         where l.group_id = g.group_id and l.outcome is null and l.offsets is null) as open,
       (select count(*) from penstock_leases l where l.group_id = g.group_id and l.outcome is null) as leases,
       (select coalesce(sum(rate), 0) from (
          select sum(json_extract(l.answer, '$[0]')) * 1.0
                 / case when count(*) = :looked then max(1, (:now - min(l.ended_at)) / 1000000.0) else 60 end as rate
            from json_each(g.starts) s
           cross join penstock_leases l on l.id in (
                   select x.id from penstock_leases x
                    where x.group_id = g.group_id and x.lanes = g.lanes and x.lane = s.key
                    order by x.id desc limit :looked)
           where l.ended_at > :now - 60000000 group by s.key)) as rate
  from penstock_groups g
 where {{of_group(g.)}};

-- name: stats.gone
-- Jobs that were removed, per group.
select t.group_id, t.completed, t.exhausted from penstock_job_totals t join penstock_groups g on g.group_id = t.group_id
 where {{of_group(g.)}};

-- name: stats.created
select "offset", created_at from penstock_events where "offset" in (select value from json_each(:offsets));

-- name: stats.oldest_held
-- The oldest event of groups in a returned range or in an open lease: of each lane's lowest, and of each lease.
select group_id, min(created_at) as created_at from (
  select r.group_id, (
         select e.created_at from penstock_events e indexed by penstock_events_stream
          where e.stream = g.stream and e."offset" > r.low and e."offset" <= r.high
            and {{in_lane(e., r.)}}
            and {{bound(b.id, e.)}}
            and not {{has_row(r.group_id, e.)}}
          order by e."offset" limit 1) as created_at
    from (select group_id, lanes, lane, binding, high, min(low) as low from penstock_returned
           where group_id in (select value from json_each(:ids)) and members > 0 group by group_id, lanes, lane) r
   cross join penstock_groups g on g.group_id = r.group_id
   cross join penstock_bindings b on b.id = r.binding
  union all
  select l.group_id, (
         select e.created_at from penstock_events e indexed by penstock_events_stream
          where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
            and {{in_lane(e., l.)}}
            and {{bound(b.id, e.)}}
            and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
          order by e."offset" limit 1)
    from penstock_groups g
   cross join penstock_leases l indexed by penstock_leases_open on l.group_id = g.group_id
   cross join penstock_bindings b on b.id = l.binding
   where g.group_id in (select value from json_each(:ids)) and l.outcome is null and l.offsets is null) held
 group by group_id;

-- name: stats.oldest_beyond
-- The first event a group wants beyond the cursors of its lanes, as far as one look reaches.
select g.group_id, (
       select e.created_at from (
         select "offset", created_at, event_type, headers, {{bucket()}} as bucket
           from penstock_events indexed by penstock_events_stream
          where stream = g.stream and "offset" > max(g.after, b.low) and "offset" <= min(b.high, :upto)
          order by "offset" limit :scan) e
        where e."offset" > json_extract(g.cursors, '$[' || (e.bucket * g.lanes / 256) || ']')
          and {{bound(b.binding, e.)}}
          and not {{has_row(g.group_id, e.)}}
        order by e."offset" limit 1) as created_at
  from (select json_extract(value, '$.group_id') as group_id, json_extract(value, '$.stream') as stream,
               json_extract(value, '$.lanes') as lanes, json_extract(value, '$.after') as after,
               json_extract(value, '$.cursors') as cursors from json_each(:rows)) g
 cross join penstock_binding_span b on b.group_id = g.group_id;

-- name: stats.beyond
-- Wanted events beyond the cursors of a group that filters by header, as far as one look reaches.
with lanes as materialized (select lane, lanes, cursor from penstock_lane where group_id = :group_id),
     b as materialized (select * from penstock_binding_span where group_id = :group_id)
select coalesce(sum(wanted), 0) as wanted, count(*) as looked from (
  select e."offset" > l.cursor
         and {{bound(b.binding, e.)}} as wanted
    from (select * from penstock_events indexed by penstock_events_stream
           where stream = :stream and "offset" > (select min(cursor) from lanes) and "offset" <= :upto
           order by "offset" limit :most) e
    join lanes l on {{in_lane(e., l.)}}
    join b on e."offset" > b.low and e."offset" <= b.high) looked;
