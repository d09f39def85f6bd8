-- name: operate.offsets
-- Events by id, so that the view is asked for offsets, which every arm of it can look up.
select "offset" from penstock_events where event_id in (select value from json_each(:ids)) order by "offset";

-- name: operate.find
select v.event_id, v."offset", v.state, v.attempts, v.total_attempts - v.attempts as earlier_attempts, v.replays,
       v.claimed_by, v.last_error, v.error_code, v.error_type, v.fingerprint,
       {{has_row(:group_id, v.)}} as has_row
  from penstock_delivery v
 where v.group_id = :group_id and v.stream = :stream /* these */;

-- name: operate.make_rows
-- As they were seen before they had rows; an error that their range came back with stays theirs.
insert into penstock_deliveries ({{row_columns}}, attempts, earlier_attempts, replays, last_error, error_code, error_type,
                                 fingerprint, available_at, updated_at)
select {{row_of_event}}, 'PENDING', n.value ->> 'attempts', n.value ->> 'earlier_attempts',
       n.value ->> 'replays', n.value ->> 'last_error', n.value ->> 'error_code', n.value ->> 'error_type',
       n.value ->> 'fingerprint', coalesce(e.available_at, :now), :now
  from json_each(:rows) n cross join penstock_events e on e."offset" = n.value ->> 'offset'
 where e.stream = :stream;

-- name: operate.leave_returned
-- An event that gets a row leaves the returned range it waited in.
update penstock_returned set members = max(0, members - (
         select count(*) from json_each(:offsets) o cross join penstock_events e on e."offset" = o.value
          where e."offset" > low and e."offset" <= high
            and {{in_lane(e., )}}))
 where group_id = :group_id;
