-- name: retention.due
-- Groups of jobs that have something to remove, as far as an index tells. A stream with another group is left alone.
with kept as (
  select g.group_id, g.stream, g.rewinds, t.keep_finished, t.keep_dead, coalesce(r.swept, 0) as swept,
         coalesce(r.rewinds, 0) as known_rewinds,
         :now - cast(max(t.keep_finished, :least) * 1000000 as integer) as finished_before,
         :now - cast(max(t.keep_dead, :least) * 1000000 as integer) as dead_before
    from penstock_job_types t
   cross join json_each('[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]') p
    join penstock_groups g on g.stream = 'jobs:' || t.queue || ':' || p.value || ':' || t.job_type and g.group_name = 'workers'
    left join penstock_job_retention r on r.group_id = g.group_id
   where (t.keep_finished is not null or t.keep_dead is not null)
     and not exists (select 1 from penstock_groups o where o.stream = g.stream and o.group_id <> g.group_id)
)
select k.stream, k.keep_finished, k.keep_dead from kept k
  left join penstock_leases f on f.id = (
         select id from penstock_leases indexed by penstock_leases_cursor
          where group_id = k.group_id and lanes = 1 and lane = 0 and fresh = 1 and high > k.swept order by high limit 1)
 where (f.ended_at <= k.finished_before
        and not exists (select 1 from penstock_returned b where b.group_id = k.group_id and b.low <= k.swept)
        and not exists (select 1 from penstock_leases a indexed by penstock_leases_again
                         where a.group_id = k.group_id and a.offsets is null and a.fresh = 0 and a.high > k.swept
                           and a.high <= case when k.rewinds > 0 then 9223372036854775807 else f.high end
                           and a.low <= k.swept and (a.ended_at <= k.finished_before) is not true)
        and not exists (select 1 from (select event_id from penstock_events indexed by penstock_events_stream
                                        where stream = k.stream and "offset" > k.swept order by "offset" limit 1) e
                         where {{key_is_held(e.)}}))
    or (select d.published_at from penstock_deliveries d indexed by penstock_deliveries_job_done
         where d.group_id = k.group_id and d.state = 'PUBLISHED' and d.stream >= 'jobs:' and d.stream < 'jobs;'
         order by d.published_at limit 1) <= k.finished_before
    or (select d.dead_at from penstock_deliveries d indexed by penstock_deliveries_job_dead
         where d.group_id = k.group_id and d.state = 'DEAD' and d.stream >= 'jobs:' and d.stream < 'jobs;'
         order by d.dead_at limit 1) <= k.dead_before
    or k.known_rewinds <> k.rewinds
 order by k.stream;

-- name: retention.turn
select swept, rewinds from penstock_job_retention where group_id = :group_id;

-- name: retention.begin
insert into penstock_job_retention (group_id) values (:group_id) on conflict do nothing;

-- name: retention.reach
-- Up to where every range has ended before a time: from the fresh leases, those claimed again, and what waits.
-- (A range that was claimed again lies within the fresh lease it came from, unless the group was rewound.)
with fresh as materialized (
  select f.low, f.high, f.ended_at <= :finished_before as over from penstock_leases f indexed by penstock_leases_cursor
   where f.group_id = :group_id and f.lanes = 1 and f.lane = 0 and f.fresh = 1 and f.high > :swept
   order by f.high limit :most
), reach as materialized (
  select coalesce((select low from fresh where over is not true order by high limit 1),
                  (select max(high) from fresh), :swept) as upto,
         coalesce((select max(high) from fresh), :swept) as last
)
select (select min(o.value) from json_each(json_array(
          reach.upto,
          (select min(r.low) from penstock_returned r where r.group_id = :group_id),
          (select min(f.low) from penstock_leases f indexed by penstock_leases_again
            where f.group_id = :group_id and f.offsets is null and f.fresh = 0 and f.high > :swept
              and f.high <= case when :rewound then 9223372036854775807 else reach.last end
              and (f.ended_at <= :finished_before) is not true))) o where o.value is not null) as upto
  from reach;

-- name: retention.held
-- The first job in a stretch whose unique key is still its own.
select min(e."offset") as "offset" from penstock_events e indexed by penstock_events_stream
 where {{in_range(e.)}} and {{key_is_held(e.)}};

-- name: retention.finished
-- Finished jobs in a stretch: those without a row, and those whose row says so.
select e."offset", e.event_type, 0 as dead
  from penstock_events e indexed by penstock_events_stream
  left join penstock_deliveries d on d.group_id = :group_id and d."offset" = e."offset"
 where {{in_range(e.)}} and (d.state is null or (d.state = 'PUBLISHED' and d.published_at <= :finished_before));

-- name: retention.rows
-- Jobs with a row that finished, or died, before a time.
select "offset", event_type, state = 'DEAD' as dead from (
  select * from (
    select d."offset", d.event_type, d.state from penstock_deliveries d indexed by penstock_deliveries_job_done
     where d.group_id = :group_id and d.state = 'PUBLISHED' and d.stream >= 'jobs:' and d.stream < 'jobs;'
       and d.published_at <= :finished_before
       and not {{key_is_held(d.)}}
     order by d.published_at limit :most)
  union all
  select * from (
    select d."offset", d.event_type, d.state from penstock_deliveries d indexed by penstock_deliveries_job_dead
     where d.group_id = :group_id and d.state = 'DEAD' and d.stream >= 'jobs:' and d.stream < 'jobs;'
       and d.dead_at <= :dead_before
       and not {{key_is_held(d.)}}
     order by d.dead_at limit :most))
 order by "offset" limit :most;

-- name: retention.remove
-- Finished jobs of a group, and what was recorded of them; (low, high] is the stretch in which they are all that was left of
-- some leases. (An id that was removed may come again: what is noted about taken ids goes with the events.)
insert into penstock_maintenance (one) values (1)
;;
delete from penstock_job_notes where "offset" in (select value from json_each(:gone))
;;
delete from penstock_job_cancels where "offset" in (select value from json_each(:gone))
;;
delete from penstock_job_unique
 where event_id in (select e.event_id from json_each(:gone) o join penstock_events e on e."offset" = o.value)
;;
delete from penstock_events where "offset" in (select value from json_each(:gone)) and stream = :stream
;;
delete from penstock_taken
;;
-- Ended leases of which no event is left. What stays: the newest, which names what is open, and the one with the cursor.
delete from penstock_leases where id in (
  with recursive held(id) as (
    select a.lease from json_each(:gone) o
     cross join penstock_attempt_log a on a.group_id = :group_id and a."offset" = o.value and a.lease is not null
    union
    select k.kept_from from held h join penstock_leases k on k.id = h.id where k.kept_from is not null)
  select l.id from penstock_leases l
   where l.id in (select id from held
                  union
                  select (select x.id from penstock_leases x indexed by penstock_leases_cursor
                           where x.group_id = :group_id and x.lanes = 1 and x.lane = 0 and x.fresh = 1 and x.high >= o.value
                           order by x.high limit 1)
                    from json_each(:gone) o
                  union
                  select f.id from penstock_leases f indexed by penstock_leases_range
                   where f.group_id = :group_id and f.offsets is null and f.high >= :low and f.high <= :high
                  union
                  select r.newest from penstock_job_retention r where r.group_id = :group_id)
     and l.group_id = :group_id and l.outcome is not null
     and l.id < (select max(n.id) from penstock_leases n where n.group_id = :group_id and n.lanes = 1 and n.lane = 0)
     and (l.fresh = 0 or l.high < (select max(n.high) from penstock_leases n
                                    where n.group_id = :group_id and n.lanes = 1 and n.lane = 0 and n.fresh = 1))
     and case when l.offsets is null
              then not exists (select 1 from penstock_events e indexed by penstock_events_stream
                                where e.stream = :stream and e."offset" > l.low and e."offset" <= l.high)
              else not exists (select 1 from json_each(l.offsets) o join penstock_events e on e."offset" = o.value) end)
;;
update penstock_job_retention
   set newest = (select max(n.id) from penstock_leases n where n.group_id = :group_id and n.lanes = 1 and n.lane = 0)
 where group_id = :group_id
;;
delete from penstock_deliveries where group_id = :group_id and "offset" in (select value from json_each(:gone))
;;
delete from penstock_attempt_log where group_id = :group_id and "offset" in (select value from json_each(:gone))
;;
insert into penstock_pruned (stream, upto) select :stream, max(value) from json_each(:gone) where true
on conflict (stream) do update set upto = max(excluded.upto, upto)
;;
delete from penstock_maintenance;

-- name: retention.swept
update penstock_job_retention set swept = :swept, rewinds = :rewinds where group_id = :group_id;

-- name: jobs.gone
-- How many jobs of a group were removed.
insert into penstock_job_totals (group_id, completed, exhausted) values (:group_id, :completed, :exhausted)
on conflict (group_id) do update
   set completed = completed + excluded.completed, exhausted = exhausted + excluded.exhausted;
