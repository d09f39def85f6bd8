-- name: import.create
insert into penstock_imports (system, source, options, counts, state, by, began_at)
values (:system, :source, :options, '{}', 'copying', :by, :now)
on conflict (system, source) do nothing;

-- name: import.find
-- An import; who writes here is alone.
select * from penstock_imports where system = :system and source = :source;

-- name: import.locked
select * from penstock_imports where id = :id;

-- name: import.save
update penstock_imports set read_upto = :read_upto, counts = :counts, state = :state, ended_at = :ended_at
 where id = :id;

-- name: import.restart
update penstock_imports set read_upto = null, counts = '{}', state = 'copying', options = :options, ended_at = null
 where id = :id;

-- name: import.add_group
insert into penstock_import_groups (group_id, import_id, settled_upto) values (:group_id, :id, :upto)
on conflict (group_id) do nothing;

-- name: import.groups
select i.group_id, i.settled_upto, i.done, g.stream, g.group_name
  from penstock_import_groups i join penstock_groups g on g.group_id = i.group_id
 where i.import_id = :id order by g.stream, g.group_name;

-- name: import.group_settled
update penstock_import_groups set settled_upto = :upto, done = :done where group_id = :group_id;

-- name: import.known
-- Events by id, with the bucket that decides their lane.
select e.event_id, e.stream, e."offset", e.created_at, {{bucket(e.)}} as bucket
  from json_each(:ids) n cross join penstock_events e on e.event_id = n.value;

-- name: import.with_rows
select "offset" from penstock_deliveries where {{these_rows}};

-- name: import.make_rows
-- Deliveries that are not simply waiting, or finished: each gets a row, as the source knew it.
insert into penstock_deliveries ({{row_columns}}, attempts, failures, earlier_attempts, last_error, error_code, error_type,
                                 fingerprint, available_at, reason, updated_at)
select {{row_of_event}}, 'PENDING', n.value ->> 'attempts', n.value ->> 'attempts', n.value ->> 'earlier_attempts',
       n.value ->> 'last_error', n.value ->> 'error_code', n.value ->> 'error_type', n.value ->> 'fingerprint',
       coalesce(n.value ->> 'available_at', e.available_at, :now), 'imported', :now
  from json_each(:rows) n cross join penstock_events e on e."offset" = n.value ->> 'offset';

-- name: import.log_rows
-- What was tried before the import, in one line.
insert into penstock_attempt_log (group_id, "offset", attempt, failures, outcome, error, error_code, ended_at, "by",
                                  error_type, fingerprint)
select group_id, "offset", earlier_attempts, earlier_attempts, 'imported', last_error, error_code, :now, :by,
       error_type, fingerprint
  from penstock_deliveries where {{these_rows}};

-- name: import.extend_range
-- Finished events that follow the last ones lengthen their range.
update penstock_import_ranges set high = :high where group_id = :group_id and high = :low;

-- name: import.add_ranges
insert into penstock_import_ranges (group_id, low, high)
select :group_id, n.value ->> 'low', n.value ->> 'high' from json_each(:rows) n where true
on conflict (group_id, low) do update set high = max(excluded.high, high);

-- name: import.reach
-- The last event that was finished in the source.
select max(high) as high from penstock_import_ranges where group_id = :group_id;

-- name: import.stretch
-- Where a stretch of so many events ends, if there are that many.
select "offset" from penstock_events indexed by penstock_events_stream
 where {{in_range()}} order by "offset" limit 1 offset :most - 1;

-- name: import.rest_rows
-- Events of a stretch that were not finished in the source, or never were in it: they wait, each with a row.
insert into penstock_deliveries ({{row_columns}}, available_at, reason, updated_at)
select {{row_of_event}}, 'PENDING', coalesce(e.available_at, :now), 'imported', :now
  from penstock_events e indexed by penstock_events_stream
 where {{in_range(e.)}}
   and coalesce((select r.high from penstock_import_ranges r where r.group_id = :group_id and r.low < e."offset"
                  order by r.low desc limit 1), 0) < e."offset"  -- the nearest range alone: there may be very many
   and not {{has_row(:group_id, e.)}};

-- name: import.drop_ranges
delete from penstock_import_ranges where group_id = :group_id;
