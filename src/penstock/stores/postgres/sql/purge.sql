-- name: purge.log
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, by, ended_at)
select group_id, "offset", attempts, failures, replays, %(outcome)s, last_error, error_code, error_type, fingerprint, %(by)s,
       %(now)s
  from penstock.deliveries where {{these_rows}} and ({{shown()}} or %(outcome)s = 'mended');

-- name: purge.move
-- They stay DEAD, and the reason hides them.
update penstock.deliveries set reason = %(outcome)s, updated_at = %(now)s
 where {{these_rows}} and state = 'DEAD' and ({{shown()}} or %(outcome)s = 'mended');
