-- Pipelines: what Spark's tasks put aside for a table, and files that are yet to get their names.

-- The attempts they belong to are in penstock_staging_attempts, with the writer `pipeline` and the lease as their batch.
create table if not exists penstock_staged_rows (
  position     integer primary key,
  attempt      text not null,
  event_offset integer,
  fields       text not null check (json_valid(fields))
);
create index if not exists penstock_staged_rows_attempt on penstock_staged_rows (attempt, position);

create table if not exists penstock_renames (
  id       integer primary key,
  lease    integer not null,
  folder   text not null,
  source   text not null,
  target   text not null,
  noted_at integer not null
);
