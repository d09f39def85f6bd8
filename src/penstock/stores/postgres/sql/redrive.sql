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
