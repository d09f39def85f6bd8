-- Rows that wait for a user's table have typed columns: one staging table for each shape of rows, made when a pipeline
-- first needs it. All of them inherit from staged_rows, so whoever counts or drops rows by attempt finds those of every
-- shape there.
alter table penstock.staged_rows alter column fields drop not null;

-- Only the owner may create tables here, so this has its rights. The columns are c1, c2, …: no name of a user's is used.
-- Rows come and go in bulk, so vacuum follows at once.
create or replace function penstock.make_staging(name text, types text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  shape text;
  one record;
begin
  if name !~ '^staged_rows_[0-9a-f]{16}$' then
    raise exception 'not the name of a staging table: %', name;
  end if;
  if types <@ array['smallint', 'integer', 'bigint', 'real', 'double precision', 'numeric', 'text', 'boolean', 'bytea',
                    'date', 'timestamp', 'timestamptz', 'jsonb'] is not true then
    raise exception 'not the types of staged rows: %', types;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('penstock.make_staging', 0));
  if to_regclass(format('penstock.%I', name)) is null then
    select string_agg(format('c%s %s', t.place, t.kind), ', ' order by t.place) into shape
      from unnest(types) with ordinality as t(kind, place);
    execute format('create unlogged table penstock.%I (%s) inherits (penstock.staged_rows) with '
                   '(autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, '
                   'autovacuum_vacuum_cost_delay = 0)', name, shape);
    execute format('create index on penstock.%I (attempt, event_offset)', name);
  end if;
  for one in
    select r.rolname, x.privilege_type as may
      from pg_class p cross join aclexplode(p.relacl) x join pg_roles r on r.oid = x.grantee
     where p.oid = 'penstock.staged_rows'::regclass and x.grantee <> p.relowner
       and not has_table_privilege(r.oid, format('penstock.%I', name)::regclass, x.privilege_type)
  loop
    execute format('grant %s on penstock.%I to %I', one.may, name, one.rolname);
  end loop;
end $$;
revoke execute on function penstock.make_staging(text, text[]) from public;

-- Gives the space of staging tables back that nobody uses at this moment.
create or replace function penstock.shrink_staging() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  one regclass;
  used boolean;
begin
  for one in
    select i.inhrelid from pg_inherits i
     where i.inhparent = 'penstock.staged_rows'::regclass and pg_relation_size(i.inhrelid) > 0
  loop
    begin
      execute format('lock table %s in access exclusive mode nowait', one);
      execute format('select exists (select 1 from %s)', one) into used;
      if not used then
        execute format('truncate %s', one);
      end if;
    exception when lock_not_available then
      null;  -- tasks are at work in it
    end;
  end loop;
end $$;
revoke execute on function penstock.shrink_staging() from public;

alter function penstock.rights() rename to rights_until_0018;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0018() r
  union all
  values ('worker', 'execute', 'function penstock.make_staging(text, text[])'),
         ('worker', 'execute', 'function penstock.shrink_staging()')
$$;
select penstock.regrant();
