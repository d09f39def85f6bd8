-- name: redrive.find
select d."offset" from penstock_deliveries d
 where {{dead_letters(d.)}}
   and d."offset" > :after
   and (:operation is null or d.operation is not :operation)
 order by d."offset" limit coalesce(:most, -1);

-- name: redrive.count
select count(*) as deliveries from penstock_deliveries d where {{dead_letters(d.)}};

-- name: redrive.held
-- How many keys have dead letters among these that wait behind another one, which does not match.
select count(distinct d.ordering_key) as keys from penstock_deliveries d
 where {{dead_letters(d.)}}
   and d.ordering_key is not null and {{behind_others(d.)}};

-- name: redrive.canaries
-- The first that can run, where dead letters halt their keys.
select d."offset" from penstock_deliveries d
 where {{dead_letters(d.)}}
   and (d.ordering_key is null or not {{behind_others(d.)}})
 order by d."offset" limit :most;

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
       dead_at = null, reason = 'redriven', updated_at = :now, operation = :operation,
       available_at = max(:now, coalesce((select e.available_at from penstock_events e
                                           where e."offset" = penstock_deliveries."offset"), :now))
 where {{these_rows}} and state = 'DEAD';
