-- How a claim takes its turn and looks around, and what it needs to do so at the same cost whatever waits.

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
  execute format('grant insert on penstock.range_actions to %I', role);
  execute format('grant insert, update on penstock.fingerprints to %I', role);
  execute format('grant insert, delete on penstock.staged_rows, penstock.renames to %I', role);
end $$;

-- What keys wait for. Dead letters have an index of their own: a group that goes on behind them never looks at them,
-- however many there are.
create index if not exists deliveries_turn on penstock.deliveries (group_id, bucket, ordering_key, "offset")
 where in_order and state in ('PENDING', 'CLAIMED');
create index if not exists deliveries_halted on penstock.deliveries (group_id, bucket, ordering_key, "offset")
 where in_order and state = 'DEAD' and reason is distinct from 'skipped';
drop index if exists penstock.deliveries_key;

-- The bounds that appenders announced, to be read in a later statement than the sequence. A bound has 31 bits: it lies less
-- than 2^30 below (or, announced since, above) the value of the sequence. Anybody can take an advisory lock; a bound counts
-- if its transaction, prepared or not, also holds what every INSERT into events holds and only a role with rights can get.
-- Roles are not looked at: SET ROLE, a SECURITY DEFINER function or a REVOKE would hide an appender.
create or replace function penstock.announced() returns setof bigint
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  class constant oid := 'penstock.events_offset_seq'::regclass::oid;
begin
  -- Mostly nobody appends at this very moment, and one look at the locks says so; else a second one is as good as the first.
  perform 1 from pg_catalog.pg_lock_status() a where a.locktype = 'advisory' and a.classid = class;
  if not found then
    return;
  end if;
  return query
  with locks as materialized (
    select * from pg_catalog.pg_lock_status() one
     where one.database = (select oid from pg_catalog.pg_database where datname = current_database()) and one.granted
  )
  select distinct a.objid::bigint from locks a
   where a.locktype = 'advisory' and a.objsubid = 2 and a.mode = 'ShareLock' and a.classid = class
     and exists (select 1 from locks w
                  where w.virtualtransaction = a.virtualtransaction and w.locktype = 'relation'
                    and w.relation = 'penstock.events'::regclass::oid and w.mode = 'RowExclusiveLock');
end $$;

-- How long the statements of a transaction may take.
create or replace function penstock.settings() returns timestamptz
language plpgsql as $$
begin
  perform set_config('lock_timeout', '30s', true), set_config('statement_timeout', '120s', true),
          set_config('idle_in_transaction_session_timeout', '10s', true), set_config('jit', 'off', true);
  return clock_timestamp();
end $$;

-- Take the turn of a group, and say which group it was: whoever waited may find that it was deleted, and another one made
-- under its name. Null if there is none.
create or replace function penstock.take_turn(a_stream text, a_group text) returns integer
language plpgsql as $$
declare
  taken integer;
begin
  loop
    select l.group_id into taken from penstock.groups one join penstock.group_locks l on l.group_id = one.group_id
     where one.stream = a_stream and one.group_name = a_group for update of l;
    exit when found or not exists (select 1 from penstock.groups where stream = a_stream and group_name = a_group);
  end loop;
  return taken;
end $$;

-- The first step of a claim, as a function, because a session plans its statements once: take the group's turn, then, in
-- later statements that see what the last holder left behind, the last value of the sequence, and behind it the announced
-- bounds; then the group with its bindings and every lane as the claimer finds it: the cursor, the newest lease and those
-- that are open (the newest names those that were open before it, so that ended leases are never visited); whether the group
-- has anything but ranges. (Asked before the bounds, it would overlook the first dated event of a stream, if that is
-- committed just then.)
drop function if exists penstock.claim_look(text, text, timestamptz);
create function penstock.claim_look(a_stream text, a_group text, at timestamptz)
returns table (group_id integer, stream text, group_name text, ordering text, keyed boolean, lanes smallint,
               starts bigint[], floor bigint, matched_before bigint, on_dead text, lease_seconds double precision,
               max_attempts integer, base_seconds double precision, factor double precision,
               cap_seconds double precision, jitter double precision, max_age_seconds double precision,
               rewinds integer, rewound_upto bigint, paused boolean, pause_reason text, created_at timestamptz, bindings text,
               circuit_opened_at timestamptz, delay_seconds double precision, probe_at timestamptz, last_error text,
               error_code text, probe bigint, probe_expires_at timestamptz,
               lane integer, cursor bigint, total bigint, last_lease bigint, last_was_range boolean,
               last_done integer, last_was_clean boolean, open_ids bigint[], expired_ids bigint[], expires_at timestamptz,
               has_returned boolean, returned_low bigint, has_rows boolean, rows_wait boolean, has_dated boolean,
               last bigint, bounds bigint[], looked_at timestamptz)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  mine   integer;
  g      record;
  last   bigint;
  bounds bigint[];
begin
  perform penstock.settings();
  mine := penstock.take_turn(a_stream, a_group);
  -- From here on every statement finds its events and rows in the order of an index and stops when it has enough. Left to
  -- itself the planner takes a stream for a small part of the log, and reads and sorts all that waits.
  perform set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true);
  select one.*, (select coalesce(json_agg(json_build_object(
                          'id', b.id, 'from_offset', b.from_offset, 'types', b.types, 'type_regex', b.type_regex,
                          'headers', b.headers::text) order by b.from_offset, b.id), '[]')::text
                   from penstock.bindings b where b.group_id = one.group_id) as bindings,
         c.opened_at as circuit_opened_at, c.delay_seconds, c.probe_at, c.last_error, c.error_code, c.probe,
         (select p.expires_at from penstock.leases p where p.id = c.probe and p.outcome is null) as probe_expires_at
    into g from penstock.groups one left join penstock.circuits c on c.group_id = one.group_id
   where one.group_id = mine;
  if not found then
    return;
  end if;
  select case when is_called then last_value else 0 end into last from penstock.events_offset_seq;
  bounds := array(select penstock.announced());
  at := coalesce(at, clock_timestamp());
  return query
  select g.group_id, g.stream, g.group_name, g.ordering, g.keyed, g.lanes, g.starts, g.floor, g.matched_before,
         g.on_dead, g.lease_seconds, g.max_attempts, g.base_seconds, g.factor, g.cap_seconds, g.jitter,
         g.max_age_seconds, g.rewinds, g.rewound_upto, g.paused, g.pause_reason, g.created_at, g.bindings,
         g.circuit_opened_at, g.delay_seconds, g.probe_at, g.last_error, g.error_code, g.probe, g.probe_expires_at,
         l.lane, c.high, c.total, n.id, n.was_range, n.done, n.clean, coalesce(o.open_ids, '{}'), coalesce(o.expired_ids, '{}'),
         o.expires_at,
         exists (select 1 from penstock.returned r where r.group_id = g.group_id),
         (select min(r.low) from penstock.returned r where r.group_id = g.group_id and r.lanes = g.lanes and r.lane = l.lane),
         exists (select 1 from penstock.deliveries d where d.group_id = g.group_id),
         case when g.ordering is null
              then (select true from penstock.deliveries d
                     where d.group_id = g.group_id and d.state = 'PENDING' order by d.available_at limit 1)
              else (select true from penstock.deliveries d
                     where d.group_id = g.group_id and d.in_order and d.state in ('PENDING', 'CLAIMED')
                       and d.bucket between l.lane * 256 / g.lanes and (l.lane + 1) * 256 / g.lanes - 1
                     order by d.bucket, d.ordering_key, d."offset" limit 1) end is not null,  -- each by its own index
         exists (select 1 from penstock.events e where e.stream = a_stream and e.available_at is not null),
         last, bounds, at
    from generate_series(0, g.lanes - 1) as l(lane)
    left join lateral (select f.high, f.total from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane and f.fresh
                        order by f.high desc limit 1) c on true
    left join lateral (select f.id, f.offsets is null as was_range, f.members - f.released as done,
                              f.published + f.dead = f.members as clean, f.open_before from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane
                        order by f.id desc limit 1) n on true
    left join lateral (select array_agg(f.id order by f.id) as open_ids, min(f.expires_at) as expires_at,
                              array_agg(f.id order by f.id) filter (where f.expires_at <= at) as expired_ids
                         from (select x.id, x.expires_at, x.outcome from penstock.leases x
                                where x.id = any(n.open_before || n.id) offset 0) f where f.outcome is null) o on true
   order by l.lane;
end $$;

-- An announced bound in full: 31 bits of it were announced, and it is near the sequence's last value.
create or replace function penstock.unfolded(bound bigint, last bigint) returns bigint
language sql immutable as $$
  select last - d + case when d < 1 << 30 then 0 else 1::bigint << 31 end
    from (select mod(last - bound + (1::bigint << 31), 1::bigint << 31) as d) distance
$$;

-- A whole claim, and all that its transaction does, where it is simple: the next events as they come, for a group without
-- filter and lanes that has nothing but ranges. Each event comes with the lease, which ends behind the last of them, or at
-- the horizon if there were fewer than wanted. No answer if it is not as simple as that;
-- one without a lease if nothing is there. Times and ids come as raw bytes and are decoded when somebody looks at them.
-- (As the only statement of its transaction it has the isolation level that the server likes best; where later statements
-- would not see what the last holder left behind, it is not as simple as that, either.)
create or replace function penstock.claim_first(
  a_stream text, a_group text, at timestamptz, a_worker text, seconds double precision, most integer, secret bigint,
  a_run bigint)
returns table (id bigint, token bigint, group_id integer, binding bigint, low bigint, horizon bigint,
               claimed_at timestamptz, expires_at timestamptz, last bigint,
               "offset" bigint, event_id bytea, event_type text, payload bytea, content_type text, headers text,
               metadata text, partition_key text, ordering_key text, available_at bytea, created_at bytea)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set lock_timeout = '30s' set jit = off as $$
#variable_conflict use_column
declare
  mine  integer;
  g     record;
  lease bigint;
  n     integer;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  mine := penstock.take_turn(a_stream, a_group);
  select case when is_called then last_value else 0 end into last from penstock.events_offset_seq;
  horizon := least(last, (select min(penstock.unfolded(bound, last)) from penstock.announced() bound));
  at := coalesce(at, clock_timestamp());
  -- The newest lease names those that were open before it; the one that reaches farthest has the cursor.
  select one.group_id, one.lease_seconds, one.starts, one.ordering is not null or one.keyed as exclusive, c.high, c.total,
         b.id as binding, coalesce(o.ids, '{}') as open_ids, coalesce(o.expired, false) as expired
    into g
    from penstock.groups one join penstock.bindings b on b.group_id = one.group_id
    left join lateral (select f.high, f.total from penstock.leases f
                        where f.group_id = one.group_id and f.lanes = 1 and f.lane = 0 and f.fresh
                        order by f.high desc limit 1) c on true
    left join lateral (select f.open_before || f.id as ids from penstock.leases f
                        where f.group_id = one.group_id and f.lanes = 1 and f.lane = 0
                        order by f.id desc limit 1) n on true
    left join lateral (select array_agg(x.id order by x.id) as ids, bool_or(x.expires_at <= at) as expired
                         from penstock.leases x where x.id = any(n.ids) and x.outcome is null) o on true
   where one.group_id = mine and one.lanes = 1 and not one.paused
     and b.type_regex is null and b.headers is null
     and not exists (select 1 from penstock.bindings two where two.group_id = one.group_id and two.id <> b.id)
     and not exists (select 1 from penstock.circuits c where c.group_id = one.group_id)
     and not exists (select 1 from penstock.returned r where r.group_id = one.group_id)
     and not exists (select 1 from penstock.deliveries d where d.group_id = one.group_id)
     and not exists (select 1 from penstock.events e where e.stream = a_stream and e.available_at is not null);
  if g is null or g.expired or (g.exclusive and g.open_ids <> '{}') then
    return;
  end if;
  low := coalesce(g.high, g.starts[1]);
  lease := nextval('penstock.leases_id_seq');
  return query
  select lease, (lease << 20) | secret, g.group_id, g.binding, low, horizon, at,
         at + make_interval(secs => coalesce(seconds, g.lease_seconds)), last,
         e."offset", uuid_send(e.event_id), e.event_type, e.payload, e.content_type, e.headers::text, e.metadata::text,
         e.partition_key, e.ordering_key, timestamptz_send(e.available_at), timestamptz_send(e.created_at)
    from penstock.events e
   where e.stream = a_stream and e."offset" > low and e."offset" <= horizon order by e."offset" limit most;
  get diagnostics n = row_count;
  if n = 0 then  -- not worth waiting for the disk
    perform set_config('synchronous_commit', 'off', true);
    return next;
    return;
  end if;
  insert into penstock.leases (id, group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at, attempts,
                               replay, members, low, high, fresh, total, open_before, run)
  overriding system value
  values (lease, g.group_id, 0, 1, g.binding, (lease << 20) | secret, a_worker, at,
          at + make_interval(secs => coalesce(seconds, g.lease_seconds)), 1, 0, n, low,
          case when n < most then horizon
               else (select e."offset" from penstock.events e
                      where e.stream = a_stream and e."offset" > low and e."offset" <= horizon
                      order by e."offset" offset most - 1 limit 1) end,
          true, coalesce(g.total, 0) + n, g.open_ids, a_run);
end $$;

-- The happy path of a settle: a whole range is done, and one row says so. Touches nothing unless the holder asks in time.
create or replace function penstock.settle_whole(
  an_id bigint, a_token bigint, at timestamptz, an_upto bigint, a_digest bytea) returns setof integer
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set lock_timeout = '30s' as $$
begin
  at := coalesce(at, clock_timestamp());
  return query
  update penstock.leases l
     set outcome = 'settled', upto = l.high, digest = a_digest, answer = array[l.members, 0, 0, 0], ended_at = at,
         published = l.members, failed = 0, dead = 0, released = 0
   where l.id = an_id and l.token = a_token and l.outcome is null and l.expires_at > at and l.high = an_upto
     and not exists (select 1 from penstock.circuits c where c.group_id = l.group_id and c.probe = l.id)
  returning l.members;
end $$;
