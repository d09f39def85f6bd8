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
