-- name: policy.set
insert into penstock_retention (stream, keep, keep_dead, archive, next_at, by, set_at)
values (:stream, :keep, :keep_dead, :archive, :now, :by, :now)
on conflict (stream) do update
   set keep = excluded.keep, keep_dead = excluded.keep_dead, archive = excluded.archive, by = excluded.by,
       set_at = excluded.set_at, next_at = excluded.next_at, passed_at = null;

-- name: policy.drop
delete from penstock_retention where stream = :stream;

-- name: policy.find
select * from penstock_retention where stream = :stream;

-- name: policy.every
select * from penstock_retention order by stream;

-- name: policy.due
-- Those whose time has come, or was set by a clock that was wrong.
select stream from (
  select stream, next_at from penstock_retention where next_at <= :now
  union all
  select stream, next_at from penstock_retention where next_at > :latest) due
 order by next_at limit :most;

-- name: policy.turn
-- A policy that is due. (BEGIN IMMEDIATE made this the only transaction that writes.)
select * from penstock_retention where stream = :stream and (next_at <= :now or next_at > :latest);

-- name: policy.went
update penstock_retention set swept = :swept, passed_at = :passed_at, next_at = :next_at where stream = :stream;

-- name: policy.archived
-- Up to where a stream is archived in a place.
select max(high) as upto from penstock_archives where stream = :stream and place = :place and state = 'done';

-- name: policy.waits
-- Up to where every group has finished what has no row of its own, in a stretch, and which group has not got further: what it
-- has not claimed yet, ranges that came back, and open leases.
with lanes as materialized (
  select group_id, group_name, lane, lanes, cursor from penstock_lane where stream = :stream
)
select group_name, upto from (
  select l.group_name, min(e."offset") - 1 as upto
    from penstock_events e indexed by penstock_events_stream
   cross join lanes l on {{in_lane(e., l.)}} and e."offset" > l.cursor
   cross join penstock_binding_span b on b.group_id = l.group_id and e."offset" > b.low and e."offset" <= b.high
   where e.stream = :stream and e."offset" > max(:low, (select min(cursor) from lanes)) and e."offset" <= :high
     and {{bound(b.binding, e.)}}
   group by l.group_name
  union all
  select g.group_name, r.low from penstock_groups g join penstock_returned r on r.group_id = g.group_id
   where g.stream = :stream and r.low < :high and r.high > :low
  union all
  select g.group_name, l.low from penstock_groups g
   cross join penstock_leases l indexed by penstock_leases_open on l.group_id = g.group_id
   where g.stream = :stream and l.outcome is null and l.offsets is null and l.low < :high and l.high > :low)
 where upto is not null
 order by upto limit 1;

-- name: policy.holds
-- Restored events that are to stay.
select low, high, until_at from penstock_holds where stream = :stream and until_at > :now order by low;

-- name: policy.held_leases
-- Leases that the lines of an attempt log name.
select distinct a.lease as id from penstock_attempt_log a
 where a.group_id = :group_id and a."offset" > :low and a."offset" <= :high
   and a."offset" not in (select value from json_each(:kept)) and a.lease is not null;

-- name: policy.remove
insert into penstock_maintenance (one) values (1)
;;
{{remove_rows}}
;;
insert into penstock_pruned (stream, upto)
select :stream, last from (
  select max("offset") as last from penstock_events
   where {{in_range()}} and "offset" not in (select value from json_each(:kept))) where last is not null
on conflict (stream) do update set upto = max(excluded.upto, upto)
;;
delete from penstock_events
 where {{in_range()}}
   and "offset" not in (select value from json_each(:kept))
;;
delete from penstock_taken
;;
delete from penstock_maintenance;

-- name: policy.leases
-- Ended leases of which no event is left. What stays: the newest of a lane, which names what is open, the one with the
-- cursor, and what a streaming reader may ask for by its number.
insert into penstock_maintenance (one) values (1)
;;
delete from penstock_leases where id in (
  with recursive named(id) as (
    select value from json_each(:ids)
    union
    select k.kept_from from named n join penstock_leases k on k.id = n.id where k.kept_from is not null)
  select l.id from penstock_leases l cross join penstock_groups g on g.group_id = l.group_id
   where l.id in (select id from named
                  union
                  select f.id from penstock_leases f indexed by penstock_leases_range
                   where f.group_id = :group_id and f.offsets is null and f.high > :low and f.high <= :high
                  union
                  select id from (select f.id from penstock_leases f indexed by penstock_leases_range
                                   where f.group_id = :group_id and f.offsets is null and f.high > :high
                                   order by f.high limit 256))
     and l.group_id = :group_id and l.outcome is not null
     and not exists (select 1 from penstock_reader_claims c where c.lease = l.id)
     and l.id < (select max(n.id) from penstock_leases n
                  where n.group_id = l.group_id and n.lanes = l.lanes and n.lane = l.lane)
     and (l.fresh = 0 or l.high < (select max(n.high) from penstock_leases n
                                    where n.group_id = l.group_id and n.lanes = l.lanes and n.lane = l.lane and n.fresh = 1))
     and case when l.offsets is null
              then not exists (select 1 from penstock_events e indexed by penstock_events_stream
                                where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
                                  and {{in_lane(e., l.)}})
              else not exists (select 1 from json_each(l.offsets) o join penstock_events e on e."offset" = o.value) end)
;;
delete from penstock_range_actions
 where group_id = :group_id and high <= :high
   and not exists (select 1 from penstock_groups g join penstock_events e on e.stream = g.stream
                    where g.group_id = :group_id and e."offset" > low and e."offset" <= high)
;;
delete from penstock_maintenance;
