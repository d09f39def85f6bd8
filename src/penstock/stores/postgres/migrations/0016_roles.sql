-- Who may do what, in one place. Later migrations that add tables name them here and end with `select penstock.regrant()`.

-- What a producer calls. It sees the answer to its own appends: not even that an event of that id exists, unless it
-- knows the whole event. (The owner's rights; the law's triggers and checks hold as for everybody.)
create or replace function penstock.put_event(
  stream text, event_id uuid, event_type text, payload bytea, content_type text, headers jsonb, metadata jsonb,
  partition_key text, ordering_key text, bucket smallint, available_at timestamptz) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  given bigint;
begin
  insert into penstock.events as e (stream, event_id, event_type, payload, content_type, headers, metadata,
                                    partition_key, ordering_key, bucket, available_at)
  values (stream, event_id, event_type, payload, content_type, headers, metadata, partition_key, ordering_key, bucket,
          available_at)
  on conflict do nothing
  returning e."offset" into given;
  return given;
end $$;

create or replace function penstock.put_events(
  streams text[], event_ids uuid[], event_types text[], payloads bytea[], content_types text[], all_headers text[],
  all_metadata text[], partition_keys text[], ordering_keys text[], buckets smallint[], times timestamptz[])
returns setof uuid
language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into penstock.events (stream, event_id, event_type, payload, content_type, headers, metadata, partition_key,
                               ordering_key, bucket, available_at)
  select n.stream, n.event_id, n.event_type, n.payload, n.content_type, n.headers::jsonb, n.metadata::jsonb,
         n.partition_key, n.ordering_key, n.bucket, n.available_at
    from unnest(streams, event_ids, event_types, payloads, content_types, all_headers, all_metadata, partition_keys,
                ordering_keys, buckets, times)
      as n(stream, event_id, event_type, payload, content_type, headers, metadata, partition_key, ordering_key, bucket,
           available_at)
  on conflict do nothing
  returning event_id
$$;

-- Where events are that were appended before, and whether they are the same: nothing else of another one is told.
create or replace function penstock.known_events(streams text[], event_ids uuid[], event_types text[], payloads bytea[])
returns table (event_id uuid, "offset" bigint, same boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select e.event_id, case when c.same then e."offset" end, c.same
    from unnest(streams, event_ids, event_types, payloads) as n(stream, event_id, event_type, payload)
    join penstock.events e on e.event_id = n.event_id
   cross join lateral (select (e.stream, e.event_type, e.payload) = (n.stream, n.event_type, n.payload) as same) c
$$;

-- (append looks up duplicates, too.)
alter function penstock.append(text, text, bytea, text, jsonb, jsonb, uuid, text, timestamptz, text) security definer;
alter function penstock.append(text, text, jsonb, text, jsonb, jsonb, uuid, text, timestamptz, text) security definer;

-- Every right that a kind of role has. A worker is a reader and a producer, too.
create or replace function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  values
    ('producer', 'usage', 'schema penstock'),
    ('producer', 'select', 'penstock.schema_version, penstock.home'),
    ('producer', 'insert (stream, event_id, event_type, payload, content_type, headers, metadata, partition_key, '
                 'ordering_key, bucket, available_at)', 'penstock.events'),
    ('reader', 'usage', 'schema penstock'),
    ('reader', 'select', 'all tables in schema penstock'),
    ('reader', 'select', 'all sequences in schema penstock'),
    ('worker', 'insert, update', 'penstock.leases, penstock.deliveries, penstock.groups, penstock.writes, penstock.runs, '
                                 'penstock.tally_mark, penstock.tally_now, penstock.fingerprints'),
    ('worker', 'insert, update, delete', 'penstock.returned, penstock.state, penstock.circuits, penstock.staging_attempts, '
                                         'penstock.staged'),
    ('worker', 'insert, delete', 'penstock.staged_rows, penstock.renames'),
    ('worker', 'insert', 'penstock.bindings, penstock.attempt_log, penstock.audit, penstock.tally, '
                         'penstock.tally_step, penstock.reader_claims, penstock.range_actions'),
    ('worker', 'update', 'penstock.group_locks, penstock.standby_horizon'),
    ('worker', 'usage', 'penstock.leases_id_seq'),
    ('worker', 'execute', 'function penstock.remove_deliveries(integer, bigint)')
  union all
  select 'producer', 'execute', 'function ' || p.oid::regprocedure
    from pg_proc p
   where p.pronamespace = (select relnamespace from pg_class where oid = 'penstock.events'::regclass)
     and p.proname in ('append', 'put_event', 'put_events', 'known_events')
$$;

create or replace function penstock.grant_kinds(role name, variadic kinds text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  one record;
begin
  for one in select r.rights, r.things from penstock.rights() r where r.kind = any (kinds) loop
    execute format('grant %s on %s to %I', one.rights, one.things, role);
  end loop;
end $$;

-- A producer appends and sees its answers; nobody but the owner writes the column "offset".
create or replace function penstock.grant_producer(role name) returns void
language sql set search_path = pg_catalog, pg_temp as $$ select penstock.grant_kinds(role, 'producer') $$;
create or replace function penstock.grant_reader(role name) returns void
language sql set search_path = pg_catalog, pg_temp as $$ select penstock.grant_kinds(role, 'reader') $$;
create or replace function penstock.grant_worker(role name) returns void
language sql set search_path = pg_catalog, pg_temp as $$ select penstock.grant_kinds(role, 'reader', 'producer', 'worker') $$;

-- Nobody calls these without a grant.
do $$
declare
  one regprocedure;
begin
  for one in
    select p.oid from pg_proc p
     where p.pronamespace = (select relnamespace from pg_class where oid = 'penstock.events'::regclass)
       and p.prosecdef and p.prorettype <> 'trigger'::regtype
  loop
    execute format('revoke execute on function %s from public', one);
  end loop;
end $$;

-- Roles that were granted something by an earlier version get what they need now. What they are is seen from what they
-- may do: a worker opens leases, a reader looks at groups, and who only inserts events is a producer, who reads none.
create or replace function penstock.regrant() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  one record;
begin
  for one in
    select r.rolname, bool_or(a.thing = 'leases' and a.may = 'INSERT') as worker,
           bool_or(a.thing = 'groups' and a.may = 'SELECT') as reader,
           bool_or(a.thing = 'events' and a.may = 'INSERT') as producer
      from (select x.grantee, c.relname as thing, x.privilege_type as may, c.relowner as owner
              from pg_class c cross join aclexplode(c.relacl) x
             where c.oid in ('penstock.leases'::regclass, 'penstock.groups'::regclass, 'penstock.events'::regclass)
             union all
            select x.grantee, 'events', x.privilege_type, c.relowner
              from pg_class c join pg_attribute t on t.attrelid = c.oid cross join aclexplode(t.attacl) x
             where c.oid = 'penstock.events'::regclass) a
      join pg_roles r on r.oid = a.grantee
     where a.grantee <> a.owner
     group by r.rolname
  loop
    if one.worker then
      perform penstock.grant_worker(one.rolname);
    elsif one.reader then
      perform penstock.grant_reader(one.rolname);
    elsif one.producer then
      execute format('revoke select on penstock.events from %I', one.rolname);
    end if;
    if one.producer and not one.worker then
      perform penstock.grant_producer(one.rolname);
    end if;
  end loop;
end $$;
select penstock.regrant();
