-- name: group.lock
-- BEGIN IMMEDIATE made this the only transaction that writes.
select group_id from penstock_groups where stream = :stream and group_name = :group_name;

-- name: group.find
-- The groups of a stream (or of the log), or one of them, or that of a lease; each with its bindings in order.
select {{group_columns}}
 where {{of_group(g.)}}
   and (:lease is null or g.group_id = (select group_id from penstock_leases where id = :lease))
 order by g.stream, g.group_name;

-- name: group.create
insert into penstock_groups (stream, group_name, ordering, keyed, lanes, starts, floor, on_dead, lease_seconds, max_attempts,
                             base_seconds, factor, cap_seconds, jitter, max_age_seconds, created_at)
values (:stream, :group_name, :ordering, :keyed, :lanes, :starts, :floor, :on_dead, :lease_seconds, :max_attempts,
        :base_seconds, :factor, :cap_seconds, :jitter, :max_age_seconds, :now)
on conflict (stream, group_name) do nothing
returning group_id;

-- name: group.bind
insert into penstock_bindings (group_id, from_offset, types, type_regex, headers, created_at)
values (:group_id, :from_offset, :types, :type_regex, :headers, :now)
returning id;

-- name: group.bind_glob
insert into penstock_binding_types (binding, "glob", min_dots, max_dots)
values (:binding, :glob, :min_dots, :max_dots) on conflict do nothing;

-- name: group.pause
update penstock_groups set paused = :paused, pause_reason = :reason where group_id = :group_id;

-- name: group.policy
update penstock_groups
   set lease_seconds = :lease_seconds, max_attempts = :max_attempts, base_seconds = :base_seconds,
       factor = :factor, cap_seconds = :cap_seconds, jitter = :jitter, max_age_seconds = :max_age_seconds, on_dead = :on_dead
 where group_id = :group_id;

-- name: group.lanes
update penstock_groups set lanes = :lanes, starts = :starts, matched_before = :matched_before
 where group_id = :group_id;

-- name: group.rewound
update penstock_groups
   set rewinds = :rewinds, rewound_upto = :rewound_upto, floor = min(floor, :target), matched_before = matched_before + :older
 where group_id = :group_id;

-- name: group.delete
insert into penstock_maintenance (one) values (1)
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
delete from penstock_groups where group_id = :group_id;

-- name: group.open_lease
select id from penstock_leases where group_id = :group_id and outcome is null limit 1;

-- name: group.created_after
select "offset", created_at from penstock_events indexed by penstock_events_stream
 where stream = :stream and "offset" > :after order by "offset" limit 1;

-- name: group.offset_at
-- The first event of a short stretch created at a time or later.
select min("offset") as "offset" from penstock_events indexed by penstock_events_stream
 where {{in_range()}} and created_at >= :at;

-- name: audit.add
insert into penstock_audit (at, "by", action, stream, group_name, "count", detail)
values (:now, :by, :action, :stream, :group_name, :count, :detail);
