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
