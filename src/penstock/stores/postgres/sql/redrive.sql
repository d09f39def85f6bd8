-- name: redrive.find
select d."offset" from penstock.deliveries d
 where {{dead_letters(d.)}}
   and d."offset" > %(after)s
   and (%(operation)s::bigint is null or d.operation is distinct from %(operation)s::bigint)
 order by d."offset" limit %(most)s::bigint;

-- name: redrive.count
select count(*) as deliveries from penstock.deliveries d where {{dead_letters(d.)}};

-- name: redrive.held
-- How many keys have dead letters among these that wait behind another one, which does not match.
select count(distinct d.ordering_key) as keys from penstock.deliveries d
 where {{dead_letters(d.)}}
   and d.ordering_key is not null and {{behind_others(d.)}};

-- name: redrive.canaries
-- The first that can run, where dead letters halt their keys.
select d."offset" from penstock.deliveries d
 where {{dead_letters(d.)}}
   and (d.ordering_key is null or not {{behind_others(d.)}})
 order by d."offset" limit %(most)s;

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
       reason = 'redriven', updated_at = %(now)s, operation = %(operation)s,
       available_at = greatest(%(now)s::timestamptz, (select e.available_at from penstock.events e
                                                       where e."offset" = deliveries."offset"))
 where {{these_rows}} and state = 'DEAD';
