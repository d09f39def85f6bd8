-- Streaming readers: which leases were claimed together, under which number. A claim that is asked for again is the same.
create table if not exists penstock.reader_claims (
  reader   text not null,
  claim    bigint not null,
  lease    bigint not null,
  group_id integer not null,
  primary key (reader, claim, lease)
);

create or replace function penstock.remove_group(a_group integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.deliveries where group_id = a_group;
  delete from penstock.leases where group_id = a_group;
  perform set_config('penstock.maintenance', '', true);
  delete from penstock.returned where group_id = a_group;
  delete from penstock.attempt_log where group_id = a_group;
  delete from penstock.state where group_id = a_group;
  delete from penstock.reader_claims where group_id = a_group;
  delete from penstock.bindings where group_id = a_group;
  delete from penstock.groups where group_id = a_group;
end $$;

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
end $$;
