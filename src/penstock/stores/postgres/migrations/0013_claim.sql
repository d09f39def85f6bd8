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
language sql stable as $$
  select distinct a.objid::bigint from pg_catalog.pg_locks a
   where a.locktype = 'advisory' and a.objsubid = 2 and a.mode = 'ShareLock' and a.granted
     and a.classid = 'penstock.events_offset_seq'::regclass::oid
     and a.database = (select oid from pg_catalog.pg_database where datname = current_database())
     and a.virtualtransaction in (
           select w.virtualtransaction from pg_catalog.pg_locks w
            where w.locktype = 'relation' and w.relation = 'penstock.events'::regclass::oid and w.database = a.database
              and w.mode = 'RowExclusiveLock' and w.granted)
$$;

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
               open_ids bigint[], expired_ids bigint[], expires_at timestamptz, has_returned boolean,
               has_rows boolean, has_dated boolean, last bigint, bounds bigint[], looked_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  g      record;
  last   bigint;
  bounds bigint[];
begin
  perform 1 from penstock.groups one join penstock.group_locks l on l.group_id = one.group_id
    where one.stream = a_stream and one.group_name = a_group for update of l;
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
   where one.stream = a_stream and one.group_name = a_group;
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
         l.lane, c.high, c.total, n.id, n.was_range, coalesce(o.open_ids, '{}'), coalesce(o.expired_ids, '{}'),
         o.expires_at,
         exists (select 1 from penstock.returned r where r.group_id = g.group_id),
         exists (select 1 from penstock.deliveries d where d.group_id = g.group_id),
         exists (select 1 from penstock.events e where e.stream = a_stream and e.available_at is not null),
         last, bounds, at
    from generate_series(0, g.lanes - 1) as l(lane)
    left join lateral (select f.high, f.total from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane and f.fresh
                        order by f.high desc limit 1) c on true
    left join lateral (select f.id, f.offsets is null as was_range, f.open_before from penstock.leases f
                        where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane
                        order by f.id desc limit 1) n on true
    left join lateral (select array_agg(f.id order by f.id) as open_ids, min(f.expires_at) as expires_at,
                              array_agg(f.id order by f.id) filter (where f.expires_at <= at) as expired_ids
                         from (select x.id, x.expires_at, x.outcome from penstock.leases x
                                where x.id = any(n.open_before || n.id) offset 0) f where f.outcome is null) o on true
   order by l.lane;
end $$;
