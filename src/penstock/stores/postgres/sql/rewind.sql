-- name: rewind.ended
select coalesce(max(replays), 0) as replays, coalesce(max("offset"), 0) as upto from penstock.deliveries
 where group_id = %(group_id)s and "offset" > %(target)s;

-- name: rewind.pruned
select upto from penstock.pruned where stream = %(stream)s;

-- name: rewind.open
{{lease_records}}
 where l.id in (select id from penstock.open_lease where group_id = %(group_id)s) and l.outcome is null
 order by l.id for update of l;

-- name: rewind.log_rows
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, error_type,
                                  fingerprint, by, range_action, ended_at)
select group_id, "offset", attempts, failures, replays, 'rewound',
       concat_ws(' ', lower(state), last_error,
                 'published_at ' || {{iso(published_at)}}), error_code,
       error_type, fingerprint, %(by)s, %(replay)s, %(now)s
  from penstock.deliveries where group_id = %(group_id)s and "offset" > %(target)s;

-- name: rewind.log_range
-- One row for all events of a stretch.
insert into penstock.range_actions (group_id, lane, lanes, binding, low, high, action, replay, by, at)
values (%(group_id)s, %(lane)s, %(lanes)s, %(binding)s, %(low)s, %(high)s, 'rewound', %(replay)s, %(by)s, %(now)s);

-- name: rewind.remove_rows
select penstock.remove_deliveries(%(group_id)s, %(target)s);

-- name: rewind.drop_returned
delete from penstock.returned where group_id = %(group_id)s and low >= %(target)s;

-- name: rewind.crossing
select * from penstock.returned where group_id = %(group_id)s and high > %(target)s;

-- name: rewind.trim_returned
update penstock.returned set high = %(target)s, members = %(members)s where id = %(id)s;

-- name: group.rewound
update penstock.groups
   set rewinds = %(rewinds)s, rewound_upto = %(rewound_upto)s, floor = least(floor, %(target)s), matched_before = matched_before + %(older)s
 where group_id = %(group_id)s;

-- name: state.reset
delete from penstock.state where group_id = %(group_id)s;
