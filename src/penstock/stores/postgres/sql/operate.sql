-- name: redrive.find
select d."offset" from penstock.deliveries d
 where d.group_id = %(group_id)s and d.state = 'DEAD'
   and (%(event_ids)s::uuid[] is null or d.event_id = any(%(event_ids)s::uuid[]))
   and {{of_error(d.)}}
   and {{of_type(d.)}}
   and ((%(since)s::timestamptz is null and %(until)s::timestamptz is null) or exists (
         select 1 from penstock.events e where e."offset" = d."offset"
            and {{created_between(e.)}}))
 order by d."offset";

-- name: redrive.log
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, by, ended_at)
select group_id, "offset", attempts, failures, replays, 'redriven', last_error, error_code, error_type, fingerprint, %(by)s,
       %(now)s
  from penstock.deliveries where {{these_rows}};

-- name: redrive.move
-- A dated event keeps its date: a dead letter may be older than it (killed, or too old).
update penstock.deliveries
   set state = 'PENDING', attempts = 0, failures = 0, earlier_attempts = earlier_attempts + attempts,
       last_error = null, error_code = null, error_type = null, fingerprint = null,
       reason = 'redriven', updated_at = %(now)s,
       available_at = greatest(%(now)s::timestamptz, (select e.available_at from penstock.events e
                                                       where e."offset" = deliveries."offset"))
 where {{these_rows}} and state = 'DEAD';

-- name: replay.find
-- From the deliveries' side, within the offsets that the time leaves; each event is looked up once.
select v."offset", v.replays, {{has_row(v.group_id, v.)}} as has_row
  from penstock.delivery v
 cross join lateral (select created_at from penstock.events where "offset" = v."offset" offset 0) e
 where v.group_id = %(group_id)s and v.state = 'PUBLISHED' and v.stream = %(stream)s
   and v."offset" > %(after)s and v."offset" <= %(upto)s
   and {{of_ids}}
   and {{of_error(v.)}}
   and {{of_type(v.)}}
   and {{created_between(e.)}};

-- name: replay.log_rows
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, by, ended_at)
select group_id, "offset", attempts, failures, replays, 'replayed',
       'published_at ' || {{iso(published_at)}}, %(by)s, %(now)s
  from penstock.deliveries where {{these_rows}};

-- name: replay.move_rows
update penstock.deliveries
   set state = 'PENDING', attempts = 0, failures = 0, replays = replays + 1, published_at = null,
       earlier_attempts = earlier_attempts + attempts,
       available_at = %(now)s, reason = 'replayed', updated_at = %(now)s
 where {{these_rows}} and state = 'PUBLISHED';

-- name: replay.log_ranged
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, by, ended_at)
select v.group_id, v."offset", v.attempts, 0, v.replays, 'replayed',
       'published_at ' || {{iso(v.published_at)}}, %(by)s, %(now)s
  from penstock.delivery v
 where v.group_id = %(group_id)s and v.state = 'PUBLISHED' and v."offset" = any(%(offsets)s::bigint[]);

-- name: replay.move_ranged
insert into penstock.deliveries ({{row_columns}}, replays, available_at, reason, updated_at, earlier_attempts)
select {{row_of_event}}, 'PENDING', r.replays + 1, %(now)s, 'replayed', %(now)s,
       {{claims_of}}
  from unnest(%(offsets)s::bigint[], %(replays)s::int[]) as r("offset", replays)
  join penstock.events e on e."offset" = r."offset" and e.stream = %(stream)s;

-- name: operate.find
select v.event_id, v."offset", v.state, v.attempts, v.total_attempts - v.attempts as earlier_attempts, v.replays,
       v.claimed_by, v.last_error, v.error_code, v.error_type, v.fingerprint,
       {{has_row(v.group_id, v.)}} as has_row
  from penstock.delivery v
 where v.group_id = %(group_id)s and v.stream = %(stream)s
   and v."offset" = any(array(select n."offset" from penstock.events n where n.event_id = any(%(ids)s::uuid[])));

-- name: operate.make_rows
-- As they were seen before they had rows; an error that their range came back with stays theirs.
insert into penstock.deliveries ({{row_columns}}, attempts, earlier_attempts, replays, last_error, error_code, error_type,
                                 fingerprint, available_at, updated_at)
select {{row_of_event}}, 'PENDING', n.attempts, n.earlier_attempts, n.replays, n.last_error, n.error_code, n.error_type, n.fingerprint,
       coalesce(e.available_at, %(now)s), %(now)s
  from jsonb_to_recordset(%(rows)s::jsonb) as n("offset" bigint, attempts int, earlier_attempts int, replays int,
                                                last_error text, error_code text, error_type text, fingerprint text)
  join penstock.events e on e."offset" = n."offset" and e.stream = %(stream)s;

-- name: operate.leave_returned
-- An event that gets a row leaves the returned range it waited in.
update penstock.returned r set members = greatest(0, members - (
         select count(*)::int from penstock.events e
          where e."offset" = any(%(offsets)s::bigint[]) and e."offset" > r.low and e."offset" <= r.high
            and {{in_lane(e., r.)}}))
 where r.group_id = %(group_id)s;

-- name: kill.claim
update penstock.deliveries
   set state = 'CLAIMED', claimed_at = %(now)s, claimed_by = %(by)s, attempts = attempts + 1
 where {{these_rows}};

-- name: kill.bury
update penstock.deliveries
   set state = 'DEAD', claimed_at = null, claimed_by = null, dead_at = %(now)s, last_error = %(reason)s,
       error_code = 'killed', error_type = null, fingerprint = null, reason = 'killed', updated_at = %(now)s
 where {{these_rows}};

-- name: kill.log
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, claimed_by,
                                  claimed_at, ended_at, by)
select group_id, "offset", attempts, failures, replays, 'killed', %(reason)s, 'killed', %(by)s, %(now)s, %(now)s, %(by)s
  from penstock.deliveries where {{these_rows}};

-- name: reschedule.move
update penstock.deliveries
   set available_at = %(available_at)s, reason = 'rescheduled', updated_at = %(now)s
 where {{these_rows}} and state = 'PENDING';

-- name: reschedule.log
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, by, ended_at)
select group_id, "offset", attempts, failures, replays, 'rescheduled',
       'available_at ' || {{iso(available_at)}}, %(by)s, %(now)s
  from penstock.deliveries where {{these_rows}};

-- name: skip.key
update penstock.deliveries set reason = 'skipped', updated_at = %(now)s
 where group_id = %(group_id)s and ordering_key = %(key)s and {{halting()}};

-- name: rewind.ended
select coalesce(max(replays), 0) as replays, coalesce(max("offset"), 0) as upto from penstock.deliveries
 where group_id = %(group_id)s and "offset" > %(target)s;

-- name: rewind.pruned
select upto from penstock.pruned where stream = %(stream)s;

-- name: rewind.open
{{lease_records}}
 where l.id in (select id from penstock.open_lease where group_id = %(group_id)s) and l.outcome is null
 order by l.id for update of l;

-- name: rewind.log_rows
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, by, range_action, ended_at)
select group_id, "offset", attempts, failures, replays, 'rewound',
       concat_ws(' ', lower(state), last_error,
                 'published_at ' || {{iso(published_at)}}), error_code,
       error_type, fingerprint, %(by)s, %(replay)s, %(now)s
  from penstock.deliveries where group_id = %(group_id)s and "offset" > %(target)s;

-- name: rewind.log_range
-- One row for all events of a stretch.
insert into penstock.range_actions (group_id, lane, lanes, binding, low, high, action, replay, by, at)
values (%(group_id)s, %(lane)s, %(lanes)s, %(binding)s, %(low)s, %(high)s, 'rewound', %(replay)s, %(by)s, %(now)s);

-- name: rewind.remove_rows
select penstock.remove_deliveries(%(group_id)s, %(target)s);

-- name: rewind.drop_returned
delete from penstock.returned where group_id = %(group_id)s and low >= %(target)s;

-- name: rewind.crossing
select * from penstock.returned where group_id = %(group_id)s and high > %(target)s;

-- name: rewind.trim_returned
update penstock.returned set high = %(target)s, members = %(members)s where id = %(id)s;
