-- What a run did is the sum over its leases; what its removed leases had counted is added up in its row.
alter table penstock_runs add column published integer not null default 0;
alter table penstock_runs add column failed integer not null default 0;
alter table penstock_runs add column dead integer not null default 0;
alter table penstock_runs add column released integer not null default 0;

create trigger if not exists penstock_keep_counts after delete on penstock_leases when old.run is not null
begin
  update penstock_runs
     set published = published + coalesce(old.published, 0), failed = failed + coalesce(old.failed, 0),
         dead = dead + coalesce(old.dead, 0), released = released + coalesce(old.released, 0)
   where id = old.run;
end;
