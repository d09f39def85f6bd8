-- name: rewind.ended
select coalesce(max(replays), 0) as replays, coalesce(max("offset"), 0) as upto from penstock_deliveries
 where group_id = :group_id and "offset" > :target;

-- name: rewind.pruned
select upto from penstock_pruned where stream = :stream;

-- name: rewind.open
{{lease_records}}
 where l.group_id = :group_id and l.outcome is null order by l.id;

-- name: rewind.log_rows
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, "by", range_action, ended_at)
select group_id, "offset", attempts, failures, replays, 'rewound',
       lower(state) || coalesce(' ' || last_error, '') || coalesce(' published_at '
         || {{iso(published_at)}}, ''),
       error_code, error_type, fingerprint, :by, :replay, :now
  from penstock_deliveries where group_id = :group_id and "offset" > :target;

-- name: rewind.log_range
-- One row for all events of a stretch.
insert into penstock_range_actions (group_id, lane, lanes, binding, low, high, action, replay, "by", at)
values (:group_id, :lane, :lanes, :binding, :low, :high, 'rewound', :replay, :by, :now);

-- name: rewind.remove_rows
insert into penstock_maintenance (one) values (1)
;;
delete from penstock_deliveries where group_id = :group_id and "offset" > :target
;;
delete from penstock_maintenance;

-- name: rewind.drop_returned
delete from penstock_returned where group_id = :group_id and low >= :target;

-- name: rewind.crossing
select * from penstock_returned where group_id = :group_id and high > :target;

-- name: rewind.trim_returned
update penstock_returned set high = :target, members = :members where id = :id;

-- name: group.rewound
update penstock_groups
   set rewinds = :rewinds, rewound_upto = :rewound_upto, floor = min(floor, :target), matched_before = matched_before + :older
 where group_id = :group_id;

-- name: state.reset
delete from penstock_state where group_id = :group_id;
