-- name: metric.last
-- When somebody sampled, recorded and folded last, and since when flows are known.
select began_at, sampled_at, recorded_at, folded_at from penstock.metric_turn;

-- name: metric.turn
-- The same for whoever comes first; nobody waits for it. (A row and no advisory lock: strangers cannot hold it.)
select began_at, sampled_at, recorded_at, folded_at from penstock.metric_turn for update skip locked;

-- name: metric.recorded
update penstock.metric_turn set sampled_at = %(minute)s, recorded_at = %(now)s;

-- name: metric.round
insert into penstock.metric_round (at, seconds) values (%(minute)s, 60) on conflict do nothing;

-- name: metric.uncounted
-- Leases of groups that are not counted yet, by the minute in which they ended: new ones, in the order of their ids and at
-- most so many of a group, and those that were open. Open ones have no minute. (Of a group whose lanes were doubled those of
-- both kinds.)
with g as materialized (
  select g.group_id, g.lanes, coalesce(m.upto, 0) as upto, coalesce(m.open_ids, '{}') as open_ids, coalesce(m.lanes, 1) as least,
         m.lanes as marked
    from penstock.groups g left join penstock.metric_mark m on m.group_id = g.group_id
   where %(ids)s::int[] is null or g.group_id = any(%(ids)s::int[])
), found as (
  select g.group_id, g.lanes, true as fresh, l.*
    from g
   cross join lateral (
         select x.* from generate_series(0, 8) as k(halvings)
          cross join lateral generate_series(0, (g.lanes >> k.halvings) - 1) as a(lane)
          cross join lateral (select n.id, n.ended_at, n.published, n.failed, n.dead, n.released from penstock.leases n
                               where n.group_id = g.group_id and n.lanes = g.lanes >> k.halvings and n.lane = a.lane
                                 and n.id > g.upto order by n.id limit %(most)s) x
          where g.lanes >> k.halvings >= g.least
          order by x.id limit %(most)s) l
  union all
  select g.group_id, g.lanes, false, l.id, l.ended_at, l.published, l.failed, l.dead, l.released
    from g cross join lateral (select * from penstock.leases o where o.id = any(g.open_ids) offset 0) l
   where l.group_id = g.group_id
  union all
  select g.group_id, g.lanes, false, null, null, null, null, null, null from g where g.marked is distinct from g.lanes
)
select group_id, lanes, date_bin('1 minute', ended_at, '1970-01-01 00:00:00+00') as minute_at,
       coalesce(sum(published), 0)::bigint as published, coalesce(sum(failed), 0)::bigint as failed,
       coalesce(sum(dead), 0)::bigint as dead, coalesce(sum(released), 0)::bigint as released,
       max(id) filter (where fresh) as upto, count(*) filter (where fresh) as fresh,
       coalesce(array_agg(id order by id) filter (where ended_at is null and id is not null), '{}') as open_ids
  from found group by group_id, lanes, minute_at;

-- name: metric.marks
-- How far groups are counted: these, and if asked for, others that have something of a minute or were behind.
select group_id, upto, open_ids, lanes, behind, at as minute_at, {{metric_values}}
  from penstock.metric_mark
 where group_id = any(%(ids)s::int[]) or (%(others)s and (at is not null or behind));

-- name: metric.mark
insert into penstock.metric_mark (group_id, upto, open_ids, lanes, behind, at, {{metric_values}})
select r.group_id, r.upto, r.open_ids, r.lanes, r.behind, r.at, {{metric_values}}
  from jsonb_to_recordset(%(rows)s::jsonb)
    as r(group_id int, upto bigint, open_ids bigint[], lanes smallint, behind boolean, at timestamptz, {{metric_types}})
on conflict (group_id) do update
   set upto = excluded.upto, open_ids = excluded.open_ids, lanes = excluded.lanes, behind = excluded.behind, at = excluded.at,
       published = excluded.published, failed = excluded.failed, dead = excluded.dead, released = excluded.released,
       lag = excluded.lag, oldest_seconds = excluded.oldest_seconds, pending = excluded.pending, claimed = excluded.claimed,
       retrying = excluded.retrying, dead_letters = excluded.dead_letters;

-- name: metric.add
-- What groups did in past minutes.
insert into penstock.metric (group_id, at, seconds, {{metric_values}})
select r.group_id, r.at, 60, {{metric_values}}
  from jsonb_to_recordset(%(rows)s::jsonb) as r(group_id int, at timestamptz, {{metric_types}});

-- name: metric.groups
select group_id, stream, group_name, created_at from penstock.groups;

-- name: metric.retrying
-- How many deliveries of groups failed and wait for another attempt.
select group_id, count(*) as rows from penstock.deliveries where state = 'PENDING' and failures > 0 group by group_id;

-- name: metric.removed
-- Events that were removed from a stream, or from each.
select stream, events from penstock.metric_removed where %(stream)s::text is null or stream = %(stream)s;

-- name: metric.sampled
-- All events that a stream, or each, ever had, as of the last sample.
select stream, events from penstock.metric_sampled where %(stream)s::text is null or stream = %(stream)s;

-- name: metric.appended
-- What streams got since the last sample, and what they have had in all.
with given as (
  select * from jsonb_to_recordset(%(rows)s::jsonb) as r(stream text, appended bigint, events bigint)
), sampled as (
  insert into penstock.metric_sampled (stream, events) select stream, events from given order by stream
  on conflict (stream) do update set events = excluded.events
)
insert into penstock.metric (stream, at, seconds, appended) select stream, %(at)s, 60, appended from given;

-- name: fold.oldest
-- The oldest rows of a width.
select least((select min(at) from penstock.metric where seconds = %(seconds)s),
             (select min(at) from penstock.metric_round where seconds = %(seconds)s)) as oldest_at;

-- name: fold.metric
-- Rows of a stretch, as rows of a greater width: flows are added up, and the largest sample stays.
with gone as (
  delete from penstock.metric where seconds = %(seconds)s and at >= %(low)s and at < %(high)s returning *
)
insert into penstock.metric (group_id, stream, at, seconds, published, failed, dead, released, appended, lag, oldest_seconds,
                             pending, claimed, retrying, dead_letters)
select group_id, stream, date_bin(make_interval(secs => %(width)s), at, '1970-01-01 00:00:00+00'), %(width)s, sum(published),
       sum(failed), sum(dead), sum(released), sum(appended), max(lag), max(oldest_seconds), max(pending), max(claimed),
       max(retrying), max(dead_letters)
  from gone group by 1, 2, 3;

-- name: fold.rounds
with gone as (
  delete from penstock.metric_round where seconds = %(seconds)s and at >= %(low)s and at < %(high)s returning *
), folded as (
  select date_bin(make_interval(secs => %(width)s), at, '1970-01-01 00:00:00+00') as start, at, at_start from gone
)
insert into penstock.metric_round (at, seconds, at_start)
select start, %(width)s, bool_or(at_start and at = start) from folded group by start
on conflict do nothing;

-- name: fold.forget
-- What is too old, and what was written of a group while it was deleted.
with gone as (
  delete from penstock.metric_mark m where not exists (select 1 from penstock.groups g where g.group_id = m.group_id)
  returning m.group_id
), orphans as (
  delete from penstock.metric where group_id in (select group_id from gone)
), rounds as (
  delete from penstock.metric_round where at < %(before)s
)
delete from penstock.metric where seconds = 3600 and at < %(before)s;

-- name: fold.folded
update penstock.metric_turn set folded_at = %(now)s;
