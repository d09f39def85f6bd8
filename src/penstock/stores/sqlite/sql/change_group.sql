-- name: group.pause
update penstock_groups set paused = :paused, pause_reason = :reason where group_id = :group_id;

-- name: group.policy
update penstock_groups
   set lease_seconds = :lease_seconds, max_attempts = :max_attempts, base_seconds = :base_seconds,
       factor = :factor, cap_seconds = :cap_seconds, jitter = :jitter, max_age_seconds = :max_age_seconds, on_dead = :on_dead,
       max_in_flight = :max_in_flight, rate_per_second = :rate_per_second
 where group_id = :group_id;

-- name: group.delete
insert into penstock_maintenance (one) values (1)
;;
delete from penstock_event_cancels where group_id = :group_id
;;
delete from penstock_import_groups where group_id = :group_id
;;
delete from penstock_fingerprint_notes where group_id = :group_id
;;
delete from penstock_import_ranges where group_id = :group_id
;;
delete from penstock_deliveries where group_id = :group_id
;;
delete from penstock_leases where group_id = :group_id
;;
delete from penstock_maintenance
;;
delete from penstock_returned where group_id = :group_id
;;
delete from penstock_attempt_log where group_id = :group_id
;;
delete from penstock_state where group_id = :group_id
;;
delete from penstock_reader_claims where group_id = :group_id
;;
delete from penstock_binding_types where binding in (select id from penstock_bindings where group_id = :group_id)
;;
delete from penstock_bindings where group_id = :group_id
;;
delete from penstock_job_retention where group_id = :group_id
;;
delete from penstock_job_totals where group_id = :group_id
;;
delete from penstock_groups where group_id = :group_id;

-- name: group.open_lease
select id from penstock_leases where group_id = :group_id and outcome is null limit 1;
