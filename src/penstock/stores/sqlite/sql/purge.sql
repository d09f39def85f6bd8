-- name: purge.log
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, "by", ended_at)
select group_id, "offset", attempts, failures, replays, :outcome, last_error, error_code, error_type, fingerprint, :by,
       :now
  from penstock_deliveries where {{these_rows}} and ({{shown()}} or :outcome = 'mended');

-- name: purge.move
-- They stay DEAD, and the reason hides them.
update penstock_deliveries set reason = :outcome, updated_at = :now
 where {{these_rows}} and state = 'DEAD' and ({{shown()}} or :outcome = 'mended');
