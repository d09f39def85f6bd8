-- name: pipeline.offsets
-- The members of a range lease, by offset alone.
select e."offset"
  {{members_of_lease}}
   and {{of_buckets(e.)}}
   and e."offset" not in (select value from json_each(:holes))
 order by e."offset";

-- name: pipeline.insert
insert into penstock_staged_rows (attempt, event_offset, fields) values (?, ?, ?);

-- name: pipeline.count
select count(*) as events from penstock_staged_rows where attempt in (select value from json_each(:attempts));

-- name: pipeline.drop_failed
-- Rows of these events.
delete from penstock_staged_rows
 where attempt in (select value from json_each(:attempts)) and event_offset in (select value from json_each(:offsets));

-- name: pipeline.events
-- The events that rows come from; null for rows that name none.
select distinct event_offset from penstock_staged_rows
 where attempt in (select value from json_each(:attempts)) order by event_offset;

-- name: pipeline.drop_rows
delete from penstock_staged_rows where attempt in (select value from json_each(:attempts));

-- name: pipeline.leftovers
-- What was put aside for leases that have ended; nobody will name it any more.
select a.attempt
  from penstock_staging_attempts a join penstock_leases l on l.id = a.batch
 where a.writer = 'pipeline' and l.outcome is not null;

-- name: pipeline.columns
-- The columns of a table; none if there is no such table.
select name from pragma_table_info(:table);

-- name: rename.note
-- Files that belong to a lease and get their names once it is settled.
insert into penstock_renames (lease, folder, source, target, noted_at)
select :lease, json_extract(r.value, '$.folder'), json_extract(r.value, '$.source'), json_extract(r.value, '$.target'), :now
  from json_each(:rows) r;

-- name: rename.due
-- Of a folder, and of a group wherever it wrote: its path may have been changed since.
select r.id, r.folder, r.source, r.target
  from penstock_renames r
 where r.folder = :folder
    or exists (select 1 from penstock_leases l join penstock_groups g on g.group_id = l.group_id
                where l.id = r.lease and g.stream = :stream and g.group_name = :group_name)
 order by r.id;

-- name: rename.forget
delete from penstock_renames where id in (select value from json_each(:ids));

-- name: rename.ended
-- Which of these leases have ended.
select id from penstock_leases where id in (select value from json_each(:ids)) and outcome is not null;
