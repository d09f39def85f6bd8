-- name: operate.offsets
-- Events by id, so that the view is asked for offsets, which every arm of it can look up.
select "offset" from penstock_events where event_id in (select value from json_each(:ids)) order by "offset";

-- name: redrive.find
select d."offset" from penstock_deliveries d
 where d.group_id = :group_id and d.state = 'DEAD'
   and (:event_ids is null or d.event_id in (select value from json_each(:event_ids)))
   and {{of_error(d.)}}
   and {{of_type(d.)}}
   and ((:since is null and :until is null) or exists (
         select 1 from penstock_events e where e."offset" = d."offset"
            and {{created_between(e.)}}))
 order by d."offset";

-- name: redrive.log
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, "by", ended_at)
select group_id, "offset", attempts, failures, replays, 'redriven', last_error, error_code, error_type, fingerprint, :by, :now
  from penstock_deliveries where {{these_rows}};

-- name: redrive.move
-- A dated event keeps its date: a dead letter may be older than it (killed, or too old).
update penstock_deliveries
   set state = 'PENDING', attempts = 0, failures = 0, earlier_attempts = earlier_attempts + attempts,
       last_error = null, error_code = null, error_type = null, fingerprint = null,
       dead_at = null, reason = 'redriven', updated_at = :now,
       available_at = max(:now, coalesce((select e.available_at from penstock_events e
                                           where e."offset" = penstock_deliveries."offset"), :now))
 where {{these_rows}} and state = 'DEAD';

-- name: replay.find
-- The comment in the WHERE becomes a list of offsets where events are named.
select v."offset", v.replays, {{has_row(:group_id, v.)}} as has_row
  from penstock_delivery v
 where v.group_id = :group_id and v.state = 'PUBLISHED' and v.stream = :stream
   and v."offset" > :after and v."offset" <= :upto
   /* these */
   and {{of_error(v.)}}
   and {{of_type(v.)}}
   and exists (select 1 from penstock_events e where e."offset" = v."offset"
                  and {{created_between(e.)}});

-- name: replay.log_rows
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, "by", ended_at)
select group_id, "offset", attempts, failures, replays, 'replayed',
       'published_at ' || {{iso(published_at)}},
       :by, :now
  from penstock_deliveries where {{these_rows}};

-- name: replay.move_rows
update penstock_deliveries
   set state = 'PENDING', attempts = 0, failures = 0, replays = replays + 1, published_at = null,
       earlier_attempts = earlier_attempts + attempts,
       available_at = :now, reason = 'replayed', updated_at = :now
 where {{these_rows}} and state = 'PUBLISHED';

-- name: replay.log_ranged
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, "by", ended_at)
select v.group_id, v."offset", v.attempts, 0, v.replays, 'replayed',
       'published_at ' || {{iso(v.published_at)}},
       :by, :now
  from penstock_delivery v
 where v.group_id = :group_id and v.state = 'PUBLISHED' /* these */;

-- name: replay.move_ranged
insert into penstock_deliveries ({{row_columns}}, replays, available_at, reason, updated_at, earlier_attempts)
select {{row_of_event}}, 'PENDING', r.value + 1, :now, 'replayed', :now,
       {{claims_of}}
  from json_each(:offsets) o
 cross join json_each(:replays) r on r.key = o.key
 cross join penstock_events e on e."offset" = o.value
 where e.stream = :stream;

-- name: operate.find
select v.event_id, v."offset", v.state, v.attempts, v.total_attempts - v.attempts as earlier_attempts, v.replays,
       v.claimed_by, v.last_error, v.error_code, v.error_type, v.fingerprint,
       {{has_row(:group_id, v.)}} as has_row
  from penstock_delivery v
 where v.group_id = :group_id and v.stream = :stream /* these */;

-- name: operate.make_rows
-- As they were seen before they had rows; an error that their range came back with stays theirs.
insert into penstock_deliveries ({{row_columns}}, attempts, earlier_attempts, replays, last_error, error_code, error_type,
                                 fingerprint, available_at, updated_at)
select {{row_of_event}}, 'PENDING', n.value ->> 'attempts', n.value ->> 'earlier_attempts',
       n.value ->> 'replays', n.value ->> 'last_error', n.value ->> 'error_code', n.value ->> 'error_type',
       n.value ->> 'fingerprint', coalesce(e.available_at, :now), :now
  from json_each(:rows) n cross join penstock_events e on e."offset" = n.value ->> 'offset'
 where e.stream = :stream;

-- name: operate.leave_returned
-- An event that gets a row leaves the returned range it waited in.
update penstock_returned set members = max(0, members - (
         select count(*) from json_each(:offsets) o cross join penstock_events e on e."offset" = o.value
          where e."offset" > low and e."offset" <= high
            and {{in_lane(e., )}}))
 where group_id = :group_id;

-- name: kill.claim
update penstock_deliveries
   set state = 'CLAIMED', claimed_at = :now, claimed_by = :by, attempts = attempts + 1
 where {{these_rows}};

-- name: kill.bury
update penstock_deliveries
   set state = 'DEAD', claimed_at = null, claimed_by = null, dead_at = :now, last_error = :reason,
       error_code = 'killed', error_type = null, fingerprint = null, reason = 'killed', updated_at = :now
 where {{these_rows}};

-- name: kill.log
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, claimed_by,
                                  claimed_at, ended_at, "by")
select group_id, "offset", attempts, failures, replays, 'killed', :reason, 'killed', :by, :now, :now, :by
  from penstock_deliveries where {{these_rows}};

-- name: reschedule.move
update penstock_deliveries set available_at = :available_at, reason = 'rescheduled', updated_at = :now
 where {{these_rows}} and state = 'PENDING';

-- name: reschedule.log
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, "by", ended_at)
select group_id, "offset", attempts, failures, replays, 'rescheduled',
       'available_at ' || {{iso(available_at)}},
       :by, :now
  from penstock_deliveries where {{these_rows}};

-- name: skip.key
update penstock_deliveries set reason = 'skipped', updated_at = :now
 where group_id = :group_id and ordering_key = :key and {{halting()}};

-- name: rewind.ended
select coalesce(max(replays), 0) as replays, coalesce(max("offset"), 0) as upto from penstock_deliveries
 where group_id = :group_id and "offset" > :target;

-- name: rewind.pruned
select upto from penstock_pruned where stream = :stream;

-- name: rewind.open
{{lease_records}}
 where l.group_id = :group_id and l.outcome is null order by l.id;

-- name: rewind.log_rows
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, "by", range_action, ended_at)
select group_id, "offset", attempts, failures, replays, 'rewound',
       lower(state) || coalesce(' ' || last_error, '') || coalesce(' published_at '
         || {{iso(published_at)}}, ''),
       error_code, error_type, fingerprint, :by, :replay, :now
  from penstock_deliveries where group_id = :group_id and "offset" > :target;

-- name: rewind.log_range
-- One row for all events of a stretch.
insert into penstock_range_actions (group_id, lane, lanes, binding, low, high, action, replay, "by", at)
values (:group_id, :lane, :lanes, :binding, :low, :high, 'rewound', :replay, :by, :now);

-- name: rewind.remove_rows
insert into penstock_maintenance (one) values (1)
;;
delete from penstock_deliveries where group_id = :group_id and "offset" > :target
;;
delete from penstock_maintenance;

-- name: rewind.drop_returned
delete from penstock_returned where group_id = :group_id and low >= :target;

-- name: rewind.crossing
select * from penstock_returned where group_id = :group_id and high > :target;

-- name: rewind.trim_returned
update penstock_returned set high = :target, members = :members where id = :id;
