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
select :lease, :folder, json_extract(r.value, '$.source'), json_extract(r.value, '$.target'), :now
  from json_each(:rows) r;

-- name: rename.due
select id, source, target from penstock_renames where folder = :folder order by id;

-- name: rename.forget
delete from penstock_renames where id in (select value from json_each(:ids));

-- name: rename.ended
-- Which of these leases have ended.
select id from penstock_leases where id in (select value from json_each(:ids)) and outcome is not null;
