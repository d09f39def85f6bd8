-- name: prune.lock
-- BEGIN IMMEDIATE made this the only transaction that writes.
select 1;

-- name: prune.steps
select distinct upto from penstock_tally_step where stream = :stream and upto > :low and upto < :high
union
select upto from (select max(upto) as upto from penstock_tally_mark) where upto > :low and upto < :high;

-- name: prune.needed
-- What a group has not finished, from the group's side: rows; ranges that came back; open leases; beyond a cursor.
select d."offset" from penstock_groups g
 cross join penstock_deliveries d on d.group_id = g.group_id and d."offset" > :low and d."offset" <= :high
 where g.stream = :stream
   and (d.state in ('PENDING', 'CLAIMED')
        or (d.state = 'DEAD' and :keep_dead and {{shown(d.)}} and (:dead_before is null or d.dead_at > :dead_before)))
union
select e."offset" from penstock_groups g
 cross join penstock_returned r on r.group_id = g.group_id
 cross join penstock_events e indexed by penstock_events_stream
    on e.stream = :stream and e."offset" > max(r.low, :low) and e."offset" <= min(r.high, :high)
 where g.stream = :stream and {{in_lane(e., r.)}}
union
select e."offset" from penstock_groups g
 cross join penstock_leases l indexed by penstock_leases_open on l.group_id = g.group_id
 cross join penstock_events e indexed by penstock_events_stream
    on e.stream = :stream and e."offset" > max(l.low, :low) and e."offset" <= min(l.high, :high)
 where g.stream = :stream and l.outcome is null and l.offsets is null
   and {{in_lane(e., l.)}}
union
select e."offset" from penstock_lane l
 cross join penstock_binding_span b on b.group_id = l.group_id
 cross join penstock_events e indexed by penstock_events_stream
    on e.stream = :stream and e."offset" > max(l.cursor, b.low, :low) and e."offset" <= min(b.high, :high)
 where l.stream = :stream and {{in_lane(e., l.)}}
   and {{bound(b.binding, e.)}};

-- name: prune.types
select event_type, count(*) as events, max("offset") as last from penstock_events indexed by penstock_events_stream
 where {{in_range()}}
   and "offset" not in (select value from json_each(:kept))
 group by event_type;

-- name: prune.wanted
-- How many of those that go a binding with headers wanted.
select count(*) as events from penstock_events e indexed by penstock_events_stream
 where {{in_range(e.)}}
   and e."offset" not in (select value from json_each(:kept))
   and (:type_regex is null or {{of_patterns(:binding, e.)}})
   and {{with_headers(:headers, e.)}};

-- name: prune.tally_now
update penstock_tally_now
   set events = events - (select c.value from json_each(:types) t join json_each(:counts) c on c.key = t.key
                           where t.value = event_type)
 where stream = :stream and event_type in (select value from json_each(:types));

-- name: prune.tally_steps
update penstock_tally_step
   set events = events - (select c.value from json_each(:types) t join json_each(:counts) c on c.key = t.key
                           where t.value = event_type)
 where stream = :stream and upto >= :high and event_type in (select value from json_each(:types));

-- name: prune.passed
update penstock_groups
   set matched_before = matched_before - (select c.value from json_each(:ids) i join json_each(:counts) c on c.key = i.key
                                           where i.value = group_id)
 where group_id in (select value from json_each(:ids));

-- name: prune.range
-- An id that was pruned may come again: what is noted about taken ids goes with the events.
insert into penstock_maintenance (one) values (1)
;;
{{remove_rows}}
;;
delete from penstock_events
 where {{in_range()}}
   and "offset" not in (select value from json_each(:kept))
;;
delete from penstock_taken
;;
insert into penstock_pruned (stream, upto) values (:stream, :last)
on conflict (stream) do update set upto = max(excluded.upto, upto)
;;
delete from penstock_maintenance;

-- name: prune.leases
insert into penstock_maintenance (one) values (1)
;;
delete from penstock_leases where id in (
  select l.id from penstock_groups g cross join penstock_leases l on l.group_id = g.group_id
   where g.group_id = :group_id and l.outcome is not null
     and (l.offsets is not null
          or l.high <= (select p.upto from penstock_groups o join penstock_pruned p on p.stream = o.stream
                         where o.group_id = :group_id))
     and not exists (select 1 from penstock_reader_claims c where c.lease = l.id)
     and l.id < (select max(n.id) from penstock_leases n
                  where n.group_id = l.group_id and n.lanes = l.lanes and n.lane = l.lane)
     and (l.fresh = 0 or l.high < (select max(n.high) from penstock_leases n
                                    where n.group_id = l.group_id and n.lanes = l.lanes and n.lane = l.lane and n.fresh = 1))
     and case when l.offsets is null
              then not exists (select 1 from penstock_events e indexed by penstock_events_stream
                                where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
                                  and {{in_lane(e., l.)}})
              else not exists (select 1 from json_each(l.offsets) o join penstock_events e on e."offset" = o.value) end
   limit :most)
;;
update penstock_maintenance set removed = changes()
;;
delete from penstock_range_actions
 where group_id = :group_id
   and high <= coalesce((select p.upto from penstock_groups g join penstock_pruned p on p.stream = g.stream
                          where g.group_id = :group_id), 0)
   and not exists (select 1 from penstock_groups g join penstock_events e on e.stream = g.stream
                    where g.group_id = :group_id and e."offset" > low and e."offset" <= high)
;;
delete from penstock_maintenance returning removed;

-- name: prune.fingerprints
delete from penstock_fingerprints
 where fingerprint not in (select fingerprint from penstock_attempt_log where fingerprint is not null
                           union all
                           select fingerprint from penstock_deliveries where fingerprint is not null
                           union all
                           select fingerprint from penstock_returned where fingerprint is not null
                           union all
                           select fingerprint from penstock_leases where fingerprint is not null);

-- name: prune.runs
-- Runs that ended, or were last heard of, long ago (the end of a run is its last heartbeat).
delete from penstock_runs where heartbeat_at < :before;

-- name: prune.drop_steps
delete from penstock_tally_step where stream = :stream and upto in (select value from json_each(:marks));

-- name: prune.drop_empty
delete from penstock_tally_mark where upto < (select max(upto) from penstock_tally_mark)
;;
delete from penstock_tally_now where events = 0;

-- name: prune.jobs
-- What was noted of jobs that are gone, and keys of theirs.
delete from penstock_job_notes
 where "offset" > :low and "offset" <= :high
   and not exists (select 1 from penstock_events e where e."offset" = penstock_job_notes."offset")
;;
delete from penstock_job_cancels
 where "offset" > :low and "offset" <= :high
   and not exists (select 1 from penstock_events e where e."offset" = penstock_job_cancels."offset")
;;
delete from penstock_job_unique
 where until_at is null and not exists (select 1 from penstock_events e where e.event_id = penstock_job_unique.event_id);

-- name: prune.dead_jobs
-- How many of the jobs that go are dead.
select count(*) as jobs from penstock_deliveries
 where group_id = :group_id and state = 'DEAD' and "offset" > :low and "offset" <= :high
   and "offset" not in (select value from json_each(:kept));
