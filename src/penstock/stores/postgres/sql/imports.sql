-- name: import.create
insert into penstock.imports (system, source, options, counts, state, by, began_at)
values (%(system)s, %(source)s, %(options)s, '{}', 'copying', %(by)s, %(now)s)
on conflict (system, source) do nothing;

-- name: import.find
-- An import, locked: who looks goes on alone.
select * from penstock.imports where system = %(system)s and source = %(source)s for update;

-- name: import.locked
select * from penstock.imports where id = %(id)s for update;

-- name: import.save
update penstock.imports set read_upto = %(read_upto)s, counts = %(counts)s, state = %(state)s, ended_at = %(ended_at)s
 where id = %(id)s;

-- name: import.restart
update penstock.imports set read_upto = null, counts = '{}', state = 'copying', options = %(options)s, ended_at = null
 where id = %(id)s;

-- name: import.add_group
insert into penstock.import_groups (group_id, import_id, settled_upto) values (%(group_id)s, %(id)s, %(upto)s)
on conflict (group_id) do nothing;

-- name: import.groups
select i.group_id, i.settled_upto, i.done, g.stream, g.group_name
  from penstock.import_groups i join penstock.groups g on g.group_id = i.group_id
 where i.import_id = %(id)s order by g.stream, g.group_name;

-- name: import.group_settled
update penstock.import_groups set settled_upto = %(upto)s, done = %(done)s where group_id = %(group_id)s;

-- name: import.known
-- Events by id, with the bucket that decides their lane.
select e.event_id, e.stream, e."offset", e.created_at, {{bucket(e.)}}::int as bucket
  from unnest(%(ids)s::uuid[]) as named(id)
 cross join lateral (select * from penstock.events where event_id = named.id offset 0) e;

-- name: import.with_rows
select "offset" from penstock.deliveries where {{these_rows}};

-- name: import.make_rows
-- Deliveries that are not simply waiting, or finished: each gets a row, as the source knew it.
insert into penstock.deliveries ({{row_columns}}, attempts, failures, earlier_attempts, last_error, error_code, error_type,
                                 fingerprint, available_at, reason, updated_at)
select {{row_of_event}}, 'PENDING', n.attempts, n.attempts, n.earlier_attempts, n.last_error, n.error_code, n.error_type,
       n.fingerprint, coalesce(n.available_at, e.available_at, %(now)s), 'imported', %(now)s
  from jsonb_to_recordset(%(rows)s::jsonb) as n("offset" bigint, attempts int, earlier_attempts int, last_error text,
                                                error_code text, error_type text, fingerprint text,
                                                available_at timestamptz)
 cross join lateral (select * from penstock.events where "offset" = n."offset" offset 0) e;

-- name: import.log_rows
-- What was tried before the import, in one line.
insert into penstock.attempt_log (group_id, "offset", attempt, failures, outcome, error, error_code, ended_at, by,
                                  error_type, fingerprint)
select group_id, "offset", earlier_attempts, earlier_attempts, 'imported', last_error, error_code, %(now)s, %(by)s,
       error_type, fingerprint
  from penstock.deliveries where {{these_rows}};

-- name: import.extend_range
-- Finished events that follow the last ones lengthen their range.
update penstock.import_ranges set high = %(high)s where group_id = %(group_id)s and high = %(low)s;

-- name: import.add_ranges
insert into penstock.import_ranges (group_id, low, high)
select %(group_id)s, n.low, n.high from jsonb_to_recordset(%(rows)s::jsonb) as n(low bigint, high bigint)
on conflict (group_id, low) do update set high = greatest(excluded.high, penstock.import_ranges.high);

-- name: import.reach
-- The last event that was finished in the source.
select max(high) as high from penstock.import_ranges where group_id = %(group_id)s;

-- name: import.stretch
-- Where a stretch of so many events ends, if there are that many.
select "offset" from penstock.events where {{in_range()}} order by stream, "offset" offset %(most)s - 1 limit 1;

-- name: import.rest_rows
-- Events of a stretch that were not finished in the source, or never were in it: they wait, each with a row.
insert into penstock.deliveries ({{row_columns}}, available_at, reason, updated_at)
select {{row_of_event}}, 'PENDING', coalesce(e.available_at, %(now)s), 'imported', %(now)s
  from penstock.events e
 where {{in_range(e.)}}
   and coalesce((select r.high from penstock.import_ranges r where r.group_id = %(group_id)s and r.low < e."offset"
                  order by r.low desc limit 1), 0) < e."offset"  -- the nearest range alone: there may be very many
   and not {{has_row(%(group_id)s, e.)}};

-- name: import.drop_ranges
delete from penstock.import_ranges where group_id = %(group_id)s;
