-- Prune: what removes events, and what was recorded about them.

-- What a run did is the sum over its leases; what its removed leases had counted is added up in its row.
alter table penstock.runs add column if not exists published bigint not null default 0;
alter table penstock.runs add column if not exists failed bigint not null default 0;
alter table penstock.runs add column if not exists dead bigint not null default 0;
alter table penstock.runs add column if not exists released bigint not null default 0;

create or replace function penstock.keep_counts() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- in order, so that two that remove leases of the same runs do not wait for each other
  perform 1 from penstock.runs where id in (select run from removed_leases) order by id for no key update;
  update penstock.runs r
     set published = r.published + s.published, failed = r.failed + s.failed, dead = r.dead + s.dead,
         released = r.released + s.released
    from (select run, coalesce(sum(published), 0) as published, coalesce(sum(failed), 0) as failed,
                 coalesce(sum(dead), 0) as dead, coalesce(sum(released), 0) as released
            from removed_leases where run is not null group by run) s
   where r.id = s.run;
  return null;
end $$;
drop trigger if exists keep_counts on penstock.leases;
create trigger keep_counts after delete on penstock.leases referencing old table as removed_leases
  for each statement execute function penstock.keep_counts();

-- The events of a stream in (low, high] but those that are kept, with their rows and their lines in the attempt log.
create or replace function penstock.prune_range(a_stream text, low bigint, high bigint, kept bigint[], last bigint)
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.deliveries d using penstock.groups g
   where g.stream = a_stream and d.group_id = g.group_id and d."offset" > low and d."offset" <= high
     and d."offset" <> all (kept);
  delete from penstock.attempt_log a using penstock.groups g
   where g.stream = a_stream and a.group_id = g.group_id and a."offset" > low and a."offset" <= high
     and a."offset" <> all (kept);
  delete from penstock.events e
   where e.stream = a_stream and e."offset" > low and e."offset" <= high and e."offset" <> all (kept);
  perform set_config('penstock.maintenance', '', true);
  insert into penstock.pruned (stream, upto) values (a_stream, last)
    on conflict (stream) do update set upto = greatest(excluded.upto, penstock.pruned.upto);
end $$;

-- Ended leases of a group, and actions on its ranges, of which no event is left. What stays: the newest of a lane, which
-- names what is open, and the one that says how far a lane has got; and what a streaming reader may ask for by its number.
-- (What lies above the prune is seen from the lease alone: only the others are looked at closely.)
create or replace function penstock.prune_leases(a_group integer, most bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  removed bigint;
  gone    constant bigint := (select p.upto from penstock.groups g join penstock.pruned p on p.stream = g.stream
                               where g.group_id = a_group);
begin
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.leases where id in (
    select l.id from penstock.groups g join penstock.leases l on l.group_id = g.group_id
     where g.group_id = a_group and l.outcome is not null and (l.offsets is not null or l.high <= gone)
       and not exists (select 1 from penstock.reader_claims c where c.lease = l.id)
       and l.id < (select max(n.id) from penstock.leases n
                    where n.group_id = l.group_id and n.lanes = l.lanes and n.lane = l.lane)
       and (not l.fresh or l.high < (select max(n.high) from penstock.leases n
                                      where n.group_id = l.group_id and n.lanes = l.lanes and n.lane = l.lane and n.fresh))
       and case when l.offsets is null
                then not exists (select 1 from penstock.events e
                                  where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
                                    and coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane)
                else not exists (select 1 from penstock.events e where e."offset" = any (l.offsets)) end
     limit most);
  get diagnostics removed = row_count;
  perform set_config('penstock.maintenance', '', true);
  delete from penstock.range_actions x using penstock.groups g
   where g.group_id = a_group and x.group_id = a_group and x.high <= gone
     and not exists (select 1 from penstock.events e
                      where e.stream = g.stream and e."offset" > x.low and e."offset" <= x.high);
  return removed;
end $$;

-- Kinds of errors that nothing names any more.
create or replace function penstock.prune_fingerprints() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  removed bigint;
begin
  delete from penstock.fingerprints f
   where not exists (select 1 from penstock.attempt_log a where a.fingerprint = f.fingerprint)
     and not exists (select 1 from penstock.deliveries d where d.fingerprint = f.fingerprint)
     and not exists (select 1 from penstock.returned r where r.fingerprint = f.fingerprint)
     and not exists (select 1 from penstock.leases l where l.fingerprint = f.fingerprint);
  get diagnostics removed = row_count;
  return removed;
end $$;
revoke execute on function penstock.prune_range(text, bigint, bigint, bigint[], bigint),
  penstock.prune_leases(integer, bigint), penstock.prune_fingerprints() from public;
