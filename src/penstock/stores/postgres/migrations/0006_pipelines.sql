-- Pipelines: what Spark's tasks put aside for a table, and files that are yet to get their names.

-- The attempts they belong to are in staging_attempts, with the writer `pipeline` and the lease as their batch.
create table if not exists penstock.staged_rows (
  attempt      uuid not null,
  position     bigint generated always as identity,
  event_offset bigint,
  fields       jsonb not null,
  primary key (attempt, position)
);

create table if not exists penstock.renames (
  id       bigint generated always as identity primary key,
  lease    bigint not null,
  folder   text not null,
  source   text not null,
  target   text not null,
  noted_at timestamptz not null default clock_timestamp()
);
