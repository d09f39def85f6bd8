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

create or replace function penstock.grant_worker(role name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform penstock.grant_reader(role);
  perform penstock.grant_producer(role);
  execute format('grant insert, update on penstock.leases, penstock.deliveries, penstock.groups to %I', role);
  execute format('grant insert, update, delete on penstock.returned, penstock.state to %I', role);
  execute format('grant usage on penstock.leases_id_seq to %I', role);
  execute format('grant execute on function penstock.remove_deliveries(integer, bigint) to %I', role);
  execute format('grant insert on penstock.bindings, penstock.attempt_log, penstock.audit, penstock.tally to %I', role);
  execute format('grant insert, update, delete on penstock.staging_attempts, penstock.staged to %I', role);
  execute format('grant insert, update on penstock.writes to %I', role);
  execute format('grant insert on penstock.reader_claims to %I', role);
  execute format('grant insert, delete on penstock.staged_rows, penstock.renames to %I', role);
end $$;
