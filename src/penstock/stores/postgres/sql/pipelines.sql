-- name: pipeline.offsets
-- The members of a range lease, by offset alone.
select e."offset"
  {{members_of_lease}};

-- name: pipeline.copy
copy penstock.staged_rows (attempt, event_offset, fields) from stdin (format binary);

-- name: pipeline.count
select count(*) as events from penstock.staged_rows where attempt = any(%(attempts)s::uuid[]);

-- name: pipeline.drop_rows
delete from penstock.staged_rows where attempt = any(%(attempts)s::uuid[]);

-- name: pipeline.leftovers
-- What was put aside for leases that have ended; nobody will name it any more.
select a.attempt
  from penstock.staging_attempts a join penstock.leases l on l.id = a.batch
 where a.writer = 'pipeline' and l.outcome is not null
   for update of a skip locked;

-- name: pipeline.columns
-- The columns of a table; none if there is no such table.
select attname as name
  from pg_attribute
 where attrelid = to_regclass(%(table)s) and attnum > 0 and not attisdropped
 order by attnum;

-- name: rename.note
-- Files that belong to a lease and get their names once it is settled.
insert into penstock.renames (lease, folder, source, target)
select %(lease)s, %(folder)s, r.source, r.target from jsonb_to_recordset(%(rows)s::jsonb) as r(source text, target text);

-- name: rename.due
select id, source, target from penstock.renames where folder = %(folder)s order by id;

-- name: rename.forget
delete from penstock.renames where id = any(%(ids)s::bigint[]);

-- name: rename.ended
-- Which of these leases have ended.
select id from penstock.leases where id = any(%(ids)s::bigint[]) and outcome is not null;
