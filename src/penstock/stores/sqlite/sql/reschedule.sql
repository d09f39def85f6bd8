-- name: reschedule.move
update penstock_deliveries set available_at = :available_at, reason = 'rescheduled', updated_at = :now
 where {{these_rows}} and state = 'PENDING';

-- name: reschedule.log
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, "by", ended_at)
select group_id, "offset", attempts, failures, replays, 'rescheduled',
       'available_at ' || {{iso(available_at)}},
       :by, :now
  from penstock_deliveries where {{these_rows}};
