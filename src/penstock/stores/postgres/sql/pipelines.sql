-- name: pipeline.offsets
-- The members of a range lease, by offset alone.
select e."offset"
  {{members_of_lease}};

-- name: pipeline.make_staging
-- A staging table for rows of these types.
select penstock.make_staging(%(name)s, %(types)s::text[]);

-- name: pipeline.shrink_staging
select penstock.shrink_staging();

-- name: pipeline.count
select count(*) as events from penstock.staged_rows where attempt = any(%(attempts)s::uuid[]);

-- name: pipeline.drop_failed
-- Rows of these events.
delete from penstock.staged_rows where attempt = any(%(attempts)s::uuid[]) and event_offset = any(%(offsets)s::bigint[]);

-- name: pipeline.events
-- The events that rows come from; null for rows that name none.
select distinct event_offset from penstock.staged_rows where attempt = any(%(attempts)s::uuid[]) order by event_offset;

-- name: pipeline.drop_rows
delete from penstock.staged_rows where attempt = any(%(attempts)s::uuid[]);

-- name: pipeline.leftovers
-- What was put aside for leases that have ended; nobody will name it any more.
select a.attempt
  from penstock.staging_attempts a join penstock.leases l on l.id = a.batch
 where a.writer = 'pipeline' and l.outcome is not null
   for update of a skip locked;

-- name: pipeline.columns
-- The columns of a table, with their types, and those without length or precision; none if there is no such table.
select attname as name, format_type(atttypid, atttypmod) as type, format_type(atttypid, null) as base,
       typcategory as category
  from pg_attribute join pg_type on pg_type.oid = atttypid
 where attrelid = to_regclass(%(table)s) and attnum > 0 and not attisdropped
 order by attnum;

-- name: rename.note
-- Files that belong to a lease and get their names once it is settled.
insert into penstock.renames (lease, folder, source, target)
select %(lease)s, r.folder, r.source, r.target
  from jsonb_to_recordset(%(rows)s::jsonb) as r(folder text, source text, target text);

-- name: rename.due
-- Of a folder, and of a group wherever it wrote: its path may have been changed since.
select r.id, r.folder, r.source, r.target
  from penstock.renames r
 where r.folder = %(folder)s
    or exists (select 1 from penstock.leases l join penstock.groups g using (group_id)
                where l.id = r.lease and g.stream = %(stream)s and g.group_name = %(group_name)s)
 order by r.id;

-- name: rename.forget
delete from penstock.renames where id = any(%(ids)s::bigint[]);

-- name: rename.ended
-- Which of these leases have ended.
select id from penstock.leases where id = any(%(ids)s::bigint[]) and outcome is not null;
