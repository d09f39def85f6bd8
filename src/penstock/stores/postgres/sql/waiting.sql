-- name: operate.find
select v.event_id, v."offset", v.state, v.attempts, v.total_attempts - v.attempts as earlier_attempts, v.replays,
       v.claimed_by, v.last_error, v.error_code, v.error_type, v.fingerprint,
       {{has_row(v.group_id, v.)}} as has_row
  from penstock.delivery v
 where v.group_id = %(group_id)s and v.stream = %(stream)s
   and v."offset" = any(array(select n."offset" from penstock.events n where n.event_id = any(%(ids)s::uuid[])));

-- name: operate.make_rows
-- As they were seen before they had rows; an error that their range came back with stays theirs.
insert into penstock.deliveries ({{row_columns}}, attempts, earlier_attempts, replays, last_error, error_code, error_type,
                                 fingerprint, available_at, updated_at)
select {{row_of_event}}, 'PENDING', n.attempts, n.earlier_attempts, n.replays, n.last_error, n.error_code, n.error_type, n.fingerprint,
       coalesce(e.available_at, %(now)s), %(now)s
  from jsonb_to_recordset(%(rows)s::jsonb) as n("offset" bigint, attempts int, earlier_attempts int, replays int,
                                                last_error text, error_code text, error_type text, fingerprint text)
  join penstock.events e on e."offset" = n."offset" and e.stream = %(stream)s;

-- name: operate.leave_returned
-- An event that gets a row leaves the returned range it waited in.
update penstock.returned r set members = greatest(0, members - (
         select count(*)::int from penstock.events e
          where e."offset" = any(%(offsets)s::bigint[]) and e."offset" > r.low and e."offset" <= r.high
            and {{in_lane(e., r.)}}))
 where r.group_id = %(group_id)s;
