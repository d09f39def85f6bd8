-- Retention: finished jobs leave after a time, and dead ones after another; what is counted of them stays.

-- How many seconds jobs of a type stay after they have finished, or died; null is for ever.
alter table penstock.job_types add column if not exists keep_finished double precision check (keep_finished >= 0);
alter table penstock.job_types add column if not exists keep_dead double precision check (keep_dead > 0);

-- How far finished jobs of a group have been removed: up to here only those are left that have a row. Whoever has locked the
-- row goes on; nobody waits for it. `rewinds` and `newest` are those of the group, and its newest lease, at that time.
create table if not exists penstock.job_retention (
  group_id integer primary key,
  swept    bigint not null default 0,
  newest   bigint,
  rewinds  integer not null default 0
);

-- Finished and dead jobs that were removed, so that totals do not fall.
create table if not exists penstock.job_totals (
  group_id  integer primary key,
  completed bigint not null default 0,
  exhausted bigint not null default 0
);

create or replace function penstock.remove_group_lock() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from penstock.group_locks where group_id = old.group_id;
  delete from penstock.circuits where group_id = old.group_id;
  delete from penstock.job_retention  -- whoever holds it waits for the group; its number does not come again
   where group_id in (select group_id from penstock.job_retention where group_id = old.group_id for update skip locked);
  delete from penstock.job_totals where group_id = old.group_id;
  return null;
end $$;

-- Rows of jobs by the time at which they ended; ranges that were claimed again, by where they end; unique keys by their job.
create index if not exists deliveries_job_done on penstock.deliveries (group_id, published_at)
 where state = 'PUBLISHED' and stream like 'jobs:%';
create index if not exists deliveries_job_dead on penstock.deliveries (group_id, dead_at)
 where state = 'DEAD' and stream like 'jobs:%';
create index if not exists leases_again on penstock.leases (group_id, high) where offsets is null and not fresh;
create index if not exists job_unique_event on penstock.job_unique (event_id);

-- Remove finished jobs of a group, by offset, and what was recorded of them; (low, high] is the stretch in which they are all
-- that was left of some leases. Refuses what is not finished, whoever calls it. (The owner's rights: a worker removes nothing
-- else.)
create or replace function penstock.remove_jobs(a_group integer, gone bigint[], low bigint, high bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  a_stream text;
  last_one bigint := (select max(o) from unnest(gone) o);
begin
  perform 1 from penstock.group_locks l where l.group_id = a_group for update;
  select g.stream into a_stream from penstock.groups g
   where g.group_id = a_group and g.group_name = 'workers' and g.stream like 'jobs:%'
     and not exists (select 1 from penstock.groups o where o.stream = g.stream and o.group_id <> g.group_id);
  if a_stream is null
     or exists (select 1 from penstock.deliveries d
                 where d.group_id = a_group and d."offset" = any (gone) and d.state in ('PENDING', 'CLAIMED'))
     or (select max(o) from unnest(gone) o
          where not exists (select 1 from penstock.deliveries d where d.group_id = a_group and d."offset" = o))
        > least((select coalesce(max(l.cursor), 0) from penstock.lane l where l.group_id = a_group),
                (select min(r.low) from penstock.returned r where r.group_id = a_group),
                (select min(o.low) from penstock.open_lease o where o.group_id = a_group and o.offsets is null)) then
    raise exception 'penstock: only finished jobs can be removed' using errcode = 'PS001';
  end if;
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.job_notes n where n."offset" = any (gone);
  delete from penstock.job_cancels c where c."offset" = any (gone);
  delete from penstock.job_unique u using penstock.events e
   where e."offset" = any (gone) and e.stream = a_stream and u.event_id = e.event_id;
  delete from penstock.events e where e."offset" = any (gone) and e.stream = a_stream;
  -- Ended leases of which no event is left. What stays: the newest, which names what is open, and the one with the cursor.
  delete from penstock.leases where id in (
    with recursive held(id) as (
      select a.lease from penstock.attempt_log a
       where a.group_id = a_group and a."offset" = any (gone) and a.lease is not null
      union
      select k.kept_from from held h join penstock.leases k on k.id = h.id where k.kept_from is not null)
    select l.id from penstock.leases l
     where l.id = any (array(
             select h.id from held h
             union
             select f.id from unnest(gone) o
              cross join lateral (select x.id from penstock.leases x
                                   where x.group_id = a_group and x.lanes = 1 and x.lane = 0 and x.fresh and x.high >= o
                                   order by x.high limit 1) f
             union
             select f.id from penstock.leases f
              where f.group_id = a_group and f.lanes = 1 and f.lane = 0 and f.fresh and f.high >= low and f.high <= high
             union
             select f.id from penstock.leases f
              where f.group_id = a_group and f.offsets is null and not f.fresh and f.high > low and f.high <= high
             union
             select r.newest from penstock.job_retention r where r.group_id = a_group))
       and l.group_id = a_group and l.outcome is not null
       and l.id < (select n.id from penstock.leases n where n.group_id = a_group and n.lanes = 1 and n.lane = 0
                    order by n.id desc limit 1)
       and (not l.fresh or l.high < (select n.high from penstock.leases n
                                      where n.group_id = a_group and n.lanes = 1 and n.lane = 0 and n.fresh
                                      order by n.high desc limit 1))
       and case when l.offsets is null
                then not exists (select 1 from penstock.events e
                                  where e.stream = a_stream and e."offset" > l.low and e."offset" <= l.high)
                else not exists (select 1 from penstock.events e where e."offset" = any (l.offsets)) end);
  update penstock.job_retention r set newest = (
    select n.id from penstock.leases n where n.group_id = a_group and n.lanes = 1 and n.lane = 0 order by n.id desc limit 1)
   where r.group_id = a_group;
  delete from penstock.deliveries d where d.group_id = a_group and d."offset" = any (gone);
  delete from penstock.attempt_log a where a.group_id = a_group and a."offset" = any (gone);
  perform set_config('penstock.maintenance', '', true);
  insert into penstock.pruned (stream, upto) values (a_stream, last_one)
    on conflict (stream) do update set upto = greatest(excluded.upto, penstock.pruned.upto);
end $$;
revoke execute on function penstock.remove_jobs(integer, bigint[], bigint, bigint) from public;

alter function penstock.rights() rename to rights_until_0024;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0024() r
  union all
  values ('worker', 'insert, update', 'penstock.job_retention, penstock.job_totals'),
         ('worker', 'update, delete', 'penstock.tally_step'),
         ('worker', 'execute', 'function penstock.remove_jobs(integer, bigint[], bigint, bigint)')
$$;
select penstock.regrant();
