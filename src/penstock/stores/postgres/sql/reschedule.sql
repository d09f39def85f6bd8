-- name: reschedule.move
update penstock.deliveries
   set available_at = %(available_at)s, reason = 'rescheduled', updated_at = %(now)s
 where {{these_rows}} and state = 'PENDING';

-- name: reschedule.log
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, by, ended_at)
select group_id, "offset", attempts, failures, replays, 'rescheduled',
       'available_at ' || {{iso(available_at)}}, %(by)s, %(now)s
  from penstock.deliveries where {{these_rows}};
