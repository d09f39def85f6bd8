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
