-- How a claim takes its turn.

-- Names tables of later migrations, too: nobody is granted anything before all of them have run.
create or replace function penstock.grant_worker(role name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform penstock.grant_reader(role);
  perform penstock.grant_producer(role);
  execute format('grant insert, update on penstock.leases, penstock.deliveries, penstock.groups to %I', role);
  execute format('grant insert, update, delete on penstock.returned, penstock.state to %I', role);
  execute format('grant update on penstock.group_locks to %I', role);
  execute format('grant usage on penstock.leases_id_seq to %I', role);
  execute format('grant execute on function penstock.remove_deliveries(integer, bigint) to %I', role);
  execute format('grant insert on penstock.bindings, penstock.attempt_log, penstock.audit, penstock.tally to %I', role);
  execute format('grant insert on penstock.tally_mark, penstock.tally_step to %I', role);
  execute format('grant insert, update on penstock.tally_now to %I', role);
  execute format('grant insert, update, delete on penstock.staging_attempts, penstock.staged to %I', role);
  execute format('grant insert, update on penstock.writes to %I', role);
  execute format('grant insert on penstock.reader_claims to %I', role);
  execute format('grant insert, delete on penstock.staged_rows, penstock.renames to %I', role);
end $$;
