-- name: metric.last
-- When somebody sampled, recorded and folded last, and since when flows are known.
select began_at, sampled_at, recorded_at, folded_at from penstock_metric_turn;

-- name: metric.turn
-- BEGIN IMMEDIATE made this the only transaction that writes.
select began_at, sampled_at, recorded_at, folded_at from penstock_metric_turn;

-- name: metric.recorded
update penstock_metric_turn set sampled_at = :minute, recorded_at = :now;

-- name: metric.round
insert into penstock_metric_round (at, seconds) values (:minute, 60) on conflict do nothing;

-- name: metric.uncounted
-- Leases of groups that are not counted yet, by the minute in which they ended: new ones, in the order of their ids and at
-- most so many of a group, and those that were open. Open ones have no minute. (Of a group whose lanes were doubled those of
-- both kinds.)
with g as materialized (
  select g.group_id, g.lanes, g.starts, coalesce(m.upto, 0) as upto, coalesce(m.open_ids, '[]') as open_ids,
         coalesce(m.lanes, 1) as least, m.lanes as marked
    from penstock_groups g left join penstock_metric_mark m on m.group_id = g.group_id
   where :ids is null or g.group_id in (select value from json_each(:ids))
), fresh as materialized (
  select g.group_id, g.lanes, l.id, l.ended_at, l.published, l.failed, l.dead, l.released,
         row_number() over (partition by g.group_id order by l.id) as number
    from g
   cross join json_each('[0, 1, 2, 3, 4, 5, 6, 7, 8]') k on g.lanes >> k.value >= g.least
   cross join json_each(g.starts) s on s.key < g.lanes >> k.value
   cross join penstock_leases l on l.id in (
           select x.id from penstock_leases x
            where x.group_id = g.group_id and x.lanes = g.lanes >> k.value and x.lane = s.key and x.id > g.upto
            order by x.id limit :most)
), found as (
  select group_id, lanes, 1 as fresh, id, ended_at, published, failed, dead, released from fresh where number <= :most
  union all
  select g.group_id, g.lanes, 0, l.id, l.ended_at, l.published, l.failed, l.dead, l.released
    from g cross join json_each(g.open_ids) o cross join penstock_leases l on l.id = o.value and l.group_id = g.group_id
  union all
  select g.group_id, g.lanes, 0, null, null, null, null, null, null from g where g.marked is not g.lanes
)
select group_id, lanes, ended_at - ended_at % 60000000 as minute_at,
       coalesce(sum(published), 0) as published, coalesce(sum(failed), 0) as failed, coalesce(sum(dead), 0) as dead,
       coalesce(sum(released), 0) as released, max(case when fresh then id end) as upto, sum(fresh) as fresh,
       json_group_array(id) filter (where ended_at is null and id is not null) as open_ids
  from found group by group_id, lanes, minute_at;

-- name: metric.marks
-- How far groups are counted: these, and if asked for, others that have something of a minute or were behind.
select group_id, upto, open_ids, lanes, behind, at as minute_at, {{metric_values}}
  from penstock_metric_mark
 where group_id in (select value from json_each(:ids)) or (:others and (at is not null or behind));

-- name: metric.mark
insert or replace into penstock_metric_mark (group_id, upto, open_ids, lanes, behind, at, {{metric_values}})
select value ->> 'group_id', value ->> 'upto', value -> 'open_ids', value ->> 'lanes', value ->> 'behind', value ->> 'at',
       {{metric_sent}}
  from json_each(:rows);

-- name: metric.add
-- What groups did in past minutes.
insert into penstock_metric (group_id, at, seconds, {{metric_values}})
select value ->> 'group_id', value ->> 'at', 60, {{metric_sent}}
  from json_each(:rows);

-- name: metric.groups
select group_id, stream, group_name, created_at from penstock_groups;

-- name: metric.retrying
-- How many deliveries of groups failed and wait for another attempt.
select group_id, count(*) as rows from penstock_deliveries where state = 'PENDING' and failures > 0 group by group_id;

-- name: metric.removed
-- Events that were removed from a stream, or from each.
select stream, events from penstock_metric_removed where :stream is null or stream = :stream;

-- name: metric.sampled
-- All events that a stream, or each, ever had, as of the last sample.
select stream, events from penstock_metric_sampled where :stream is null or stream = :stream;

-- name: metric.appended
-- What streams got since the last sample, and what they have had in all.
insert or replace into penstock_metric_sampled (stream, events)
select value ->> 'stream', value ->> 'events' from json_each(:rows)
;;
insert into penstock_metric (stream, at, seconds, appended)
select value ->> 'stream', :at, 60, value ->> 'appended' from json_each(:rows);

-- name: fold.oldest
-- The oldest rows of a width.
select min(at) as oldest_at from (
  select min(at) as at from penstock_metric where seconds = :seconds
  union all
  select min(at) from penstock_metric_round where seconds = :seconds);

-- name: fold.metric
-- Rows of a stretch, as rows of a greater width: flows are added up, and the largest sample stays.
insert into penstock_metric (group_id, stream, at, seconds, published, failed, dead, released, appended, lag, oldest_seconds,
                             pending, claimed, retrying, dead_letters)
select group_id, stream, at - at % (:width * 1000000), :width, sum(published), sum(failed), sum(dead), sum(released),
       sum(appended), max(lag), max(oldest_seconds), max(pending), max(claimed), max(retrying), max(dead_letters)
  from penstock_metric where seconds = :seconds and at >= :low and at < :high group by 1, 2, 3
;;
delete from penstock_metric where seconds = :seconds and at >= :low and at < :high;

-- name: fold.rounds
insert or ignore into penstock_metric_round (at, seconds, at_start)
select at - at % (:width * 1000000), :width, max(at_start and at % (:width * 1000000) = 0)
  from penstock_metric_round where seconds = :seconds and at >= :low and at < :high group by 1
;;
delete from penstock_metric_round where seconds = :seconds and at >= :low and at < :high;

-- name: fold.forget
-- What is too old. (A group that is deleted takes its own along.)
delete from penstock_metric_round where at < :before
;;
delete from penstock_metric where seconds = 3600 and at < :before;

-- name: fold.folded
update penstock_metric_turn set folded_at = :now;
