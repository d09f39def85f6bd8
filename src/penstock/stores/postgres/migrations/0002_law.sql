-- The law: what no client, this library included, can make the database do.

-- An appender announces itself before it draws a number (see docs/explanation/horizon.md). Class and bound fit the two
-- 32-bit halves of an advisory lock; the sequence's oid keeps two logs in one database apart.
create or replace function penstock.announce() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  bound bigint;
  me    text := pg_current_xact_id()::text;
begin
  if current_setting('penstock.announced', true) is distinct from me then
    select case when is_called then last_value else 0 end into bound from penstock.events_offset_seq;
    perform pg_advisory_xact_lock_shared('penstock.events_offset_seq'::regclass::oid::bigint::bit(32)::int,
                                         (bound & 2147483647)::int);
    perform set_config('penstock.announced', me, true);
  end if;
  return null;
end $$;
drop trigger if exists announce on penstock.events;
create trigger announce before insert on penstock.events for each statement execute function penstock.announce();
alter table penstock.events enable always trigger announce;

-- Nothing is deleted or rewritten but by prune, rewind and erase, which say so for the length of their statement.
create or replace function penstock.refuse() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'DELETE' and current_setting('penstock.maintenance', true) = pg_current_xact_id()::text then
    return null;
  end if;
  raise exception 'penstock: % of % is refused: it is append-only', tg_op, tg_table_name
    using errcode = 'PS001', hint = 'Only prune, rewind and erase remove anything. See `penstock explain append_only`.';
end $$;
do $$
declare
  t text;
begin
  foreach t in array array['events', 'leases', 'deliveries'] loop
    execute format('drop trigger if exists refuse_delete on penstock.%I', t);
    execute format('create trigger refuse_delete before delete on penstock.%I for each statement execute function penstock.refuse()', t);
    execute format('alter table penstock.%I enable always trigger refuse_delete', t);
    execute format('drop trigger if exists refuse_truncate on penstock.%I', t);
    execute format('create trigger refuse_truncate before truncate on penstock.%I for each statement execute function penstock.refuse()', t);
    execute format('alter table penstock.%I enable always trigger refuse_truncate', t);
  end loop;
end $$;
drop trigger if exists refuse_update on penstock.events;
create trigger refuse_update before update on penstock.events for each statement execute function penstock.refuse();
alter table penstock.events enable always trigger refuse_update;

-- A lease says for ever what it contains; it ends once.
create or replace function penstock.keep_lease() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if old.outcome is not null then
    raise exception 'penstock: lease % has ended (%) and cannot change', old.id, old.outcome using errcode = 'PS001';
  end if;
  if (old.id, old.group_id, old.lane, old.lanes, old.binding, old.token, old.claimed_by, old.claimed_at, old.attempts,
      old.members, old.low, old.high, old.holes, old.offsets, old.fresh)
     is distinct from
     (new.id, new.group_id, new.lane, new.lanes, new.binding, new.token, new.claimed_by, new.claimed_at, new.attempts,
      new.members, new.low, new.high, new.holes, new.offsets, new.fresh) then
    raise exception 'penstock: what lease % contains cannot change', old.id using errcode = 'PS001';
  end if;
  return new;
end $$;
drop trigger if exists keep_lease on penstock.leases;
create trigger keep_lease before update on penstock.leases for each row execute function penstock.keep_lease();
alter table penstock.leases enable always trigger keep_lease;

-- Exactly six transitions. The self-pairs are refused, too, which is why this looks at UPDATE OF state.
create or replace function penstock.transition() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if (old.state, new.state) not in (('PENDING', 'CLAIMED'), ('CLAIMED', 'PUBLISHED'), ('CLAIMED', 'PENDING'),
                                    ('CLAIMED', 'DEAD'), ('PUBLISHED', 'PENDING'), ('DEAD', 'PENDING')) then
    raise exception 'penstock: % -> % is not a transition of a delivery', old.state, new.state
      using errcode = 'PS002',
            hint = 'PENDING->CLAIMED, CLAIMED->PUBLISHED|PENDING|DEAD, PUBLISHED->PENDING (replay), DEAD->PENDING (redrive).';
  end if;
  if new.state <> 'CLAIMED' then
    new.lease := null;
  end if;
  new.dead_at := case when new.state = 'DEAD' then coalesce(new.dead_at, clock_timestamp()) end;
  return new;
end $$;
drop trigger if exists transition on penstock.deliveries;
-- (Asked here, a row that is in order costs no call of the function.)
create trigger transition before update of state on penstock.deliveries for each row
  when ((old.state, new.state) not in (('PENDING', 'CLAIMED'), ('CLAIMED', 'PUBLISHED'), ('CLAIMED', 'PENDING'),
                                       ('CLAIMED', 'DEAD'), ('PUBLISHED', 'PENDING'), ('DEAD', 'PENDING'))
        or (new.state <> 'CLAIMED' and new.lease is not null) or (new.state = 'DEAD') <> (new.dead_at is not null))
  execute function penstock.transition();
alter table penstock.deliveries enable always trigger transition;

create or replace function penstock.keep_delivery() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if (old.group_id, old."offset", old.stream, old.group_name, old.event_id, old.event_type, old.ordering_key, old.bucket,
      old.in_order)
     is distinct from
     (new.group_id, new."offset", new.stream, new.group_name, new.event_id, new.event_type, new.ordering_key, new.bucket,
      new.in_order) then
    raise exception 'penstock: the identity of a delivery cannot change' using errcode = 'PS001';
  end if;
  if new.attempts < old.attempts and old.state not in ('PUBLISHED', 'DEAD') then
    raise exception 'penstock: attempts never decrease within a lifecycle' using errcode = 'PS001';
  end if;
  return new;
end $$;
drop trigger if exists keep_delivery on penstock.deliveries;
create trigger keep_delivery before update on penstock.deliveries for each row
  when ((old.group_id, old."offset", old.stream, old.group_name, old.event_id, old.event_type, old.ordering_key, old.bucket,
         old.in_order)
        is distinct from
        (new.group_id, new."offset", new.stream, new.group_name, new.event_id, new.event_type, new.ordering_key, new.bucket,
         new.in_order)
        or new.attempts < old.attempts)
  execute function penstock.keep_delivery();
alter table penstock.deliveries enable always trigger keep_delivery;

-- A row is born PENDING, or as the outcome of an open lease that contains its offset.
create or replace function penstock.born() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if new.state <> 'PENDING' then
    perform 1 from penstock.leases l
     where l.id = new.lease and l.group_id = new.group_id and l.outcome is null and l.offsets is null
       and new."offset" > l.low and new."offset" <= l.high and new."offset" <> all (l.holes)
       and new.bucket * l.lanes / 256 = l.lane;
    if not found or new.state not in ('DEAD', 'PUBLISHED') then
      raise exception 'penstock: a delivery cannot be born % outside its lease', new.state using errcode = 'PS002';
    end if;
    new.lease := null;
  end if;
  return new;
end $$;
drop trigger if exists born on penstock.deliveries;
create trigger born before insert on penstock.deliveries for each row when (new.state <> 'PENDING')
  execute function penstock.born();
alter table penstock.deliveries enable always trigger born;

-- The owner's functions that may remove.
create or replace function penstock.remove_deliveries(a_group integer, above bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  removed bigint;
begin
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.deliveries where group_id = a_group and "offset" > above;
  get diagnostics removed = row_count;
  perform set_config('penstock.maintenance', '', true);
  return removed;
end $$;

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

create or replace function penstock.remove_events(a_stream text, below bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  removed bigint;
begin
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.deliveries d using penstock.groups g
   where g.stream = a_stream and d.group_id = g.group_id and d."offset" <= below and d.state = 'PUBLISHED';
  delete from penstock.events e where e.stream = a_stream and e."offset" <= below;
  get diagnostics removed = row_count;
  perform set_config('penstock.maintenance', '', true);
  insert into penstock.pruned (stream, upto) values (a_stream, below)
    on conflict (stream) do update set upto = greatest(excluded.upto, penstock.pruned.upto);
  return removed;
end $$;

-- The outbox of every language: one call in the caller's own transaction.
create or replace function penstock.append(
  stream text, event_type text, payload bytea, ordering_key text default null, headers jsonb default null,
  metadata jsonb default null, event_id uuid default null, partition_key text default null,
  available_at timestamptz default null, content_type text default 'application/json',
  out "offset" bigint, out id uuid, out duplicate boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  name_rule constant text := '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
  known     record;
begin
  if stream is null or stream !~ name_rule or event_type is null or event_type !~ name_rule then
    raise exception 'penstock: stream and event_type must be names of letters, digits and . _ : -' using errcode = 'PS003';
  end if;
  if payload is null or octet_length(payload) > 1048576 then
    raise exception 'penstock: payload must be given and have at most 1 MiB' using errcode = 'PS003';
  end if;
  if octet_length(ordering_key) not between 1 and 512 or octet_length(partition_key) not between 1 and 512 then
    raise exception 'penstock: a key must have 1 to 512 bytes' using errcode = 'PS003';
  end if;
  if jsonb_typeof(headers) <> 'object' or octet_length(headers::text) > 8192
     or exists (select 1 from jsonb_each(headers) h where jsonb_typeof(h.value) <> 'string') then
    raise exception 'penstock: headers must be an object of text values of at most 8 KiB' using errcode = 'PS003';
  end if;
  if jsonb_typeof(metadata) <> 'object' or octet_length(metadata::text) > 8192 then
    raise exception 'penstock: metadata must be an object of at most 8 KiB' using errcode = 'PS003';
  end if;
  id := coalesce(event_id, gen_random_uuid());
  insert into penstock.events as e (stream, event_id, event_type, payload, content_type, headers, metadata,
                                    partition_key, ordering_key, bucket, available_at)
  values (stream, id, event_type, payload, coalesce(content_type, 'application/json'), nullif(headers, '{}'),
          nullif(metadata, '{}'), partition_key, ordering_key,
          get_byte(sha256(convert_to(ordering_key, 'UTF8')), 0), available_at)
  on conflict do nothing
  returning e."offset" into "offset";
  duplicate := "offset" is null;
  if duplicate then
    select e.* into known from penstock.events e where e.event_id = id;
    if (known.stream, known.event_type, known.payload) is distinct from (stream, event_type, payload) then
      raise exception 'penstock: event id % is taken by another event', id using errcode = 'PS004';
    end if;
    "offset" := known."offset";
  end if;
end $$;

create or replace function penstock.append(
  stream text, event_type text, payload jsonb, ordering_key text default null, headers jsonb default null,
  metadata jsonb default null, event_id uuid default null, partition_key text default null,
  available_at timestamptz default null, content_type text default 'application/json',
  out "offset" bigint, out id uuid, out duplicate boolean)
language sql set search_path = pg_catalog, pg_temp as $$
  select a."offset", a.id, a.duplicate
    from penstock.append(stream, event_type, convert_to(payload::text, 'UTF8'), ordering_key, headers, metadata, event_id,
                         partition_key, available_at, content_type) a
$$;

-- Least privilege. A producer appends and nothing else; nobody but the owner writes the column "offset".
create or replace function penstock.grant_producer(role name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('grant usage on schema penstock to %I', role);
  execute format('grant select on penstock.events, penstock.schema_version to %I', role);
  execute format('grant insert (stream, event_id, event_type, payload, content_type, headers, metadata, partition_key, '
                 'ordering_key, bucket, available_at) on penstock.events to %I', role);
end $$;

create or replace function penstock.grant_reader(role name) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('grant usage on schema penstock to %I', role);
  execute format('grant select on all tables in schema penstock to %I', role);
  execute format('grant select on penstock.events_offset_seq to %I', role);
end $$;

-- Names tables of later migrations, too: nobody is granted anything before all of them have run.
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
revoke execute on function penstock.remove_deliveries(integer, bigint), penstock.remove_events(text, bigint),
  penstock.remove_group(integer) from public;
