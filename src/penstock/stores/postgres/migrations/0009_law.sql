-- The law, without the gaps that raw SQL found.

-- A bound may be any number not above the sequence's last value. Whoever holds the lock of one exclusively, a stranger
-- perhaps, stops nobody: the next lower one is taken.
create or replace function penstock.announce() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  bound bigint;
  me    text := pg_current_xact_id()::text;
  class constant integer := 'penstock.events_offset_seq'::regclass::oid::bigint::bit(32)::int;
begin
  if current_setting('penstock.announced', true) is distinct from me then
    select case when is_called then last_value else 0 end into bound from penstock.events_offset_seq;
    while not pg_try_advisory_xact_lock_shared(class, (bound & 2147483647)::int) loop
      bound := bound - 1;
    end loop;
    perform set_config('penstock.announced', me, true);
  end if;
  return null;
end $$;

-- A row stands here in logs that were opened with a clock of a test's own: times in them are not the database's.
create table if not exists penstock.test_clock (
  since timestamptz not null default clock_timestamp()
);

-- A forged bucket would put an event into a lane that nobody claims. (A CHECK, since a row trigger would slow COPY down;
-- not valid, since it is for what comes.)
alter table penstock.events drop constraint if exists bucket_fits_key;
alter table penstock.events add constraint bucket_fits_key
  check (bucket is not distinct from get_byte(sha256(convert_to(ordering_key, 'UTF8')), 0)) not valid;

-- A lease is born open, by whoever has its group's turn: holds the row of the group in group_locks. A worker of an earlier
-- version, which goes on while the schema is upgraded, takes turns in another way, and would hand out the same events.
create or replace function penstock.born_open() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if new.outcome is not null or new.upto is not null or new.digest is not null or new.answer is not null
     or new.ended_at is not null or new.published is not null or new.failed is not null or new.dead is not null
     or new.released is not null then
    raise exception 'penstock: a lease cannot be born with an outcome'
      using errcode = 'PS002', hint = 'Insert it open; only its holder settles it.';
  end if;
  perform 1 from penstock.group_locks l where l.group_id = new.group_id and l.xmax = pg_current_xact_id()::xid;
  if not found then
    raise exception 'penstock: a lease cannot be born without the turn of its group'
      using errcode = 'PS002', hint = 'Restart workers of an earlier version. By hand: lock the row in group_locks first.';
  end if;
  return new;
end $$;
drop trigger if exists born_open on penstock.leases;
create trigger born_open before insert on penstock.leases for each row execute function penstock.born_open();
alter table penstock.leases enable always trigger born_open;

-- A lease says for ever what it contains; it ends once; past its end it is neither settled nor extended. (now() is when
-- the transaction began, so that a settle that began in time is not stopped in the middle.)
create or replace function penstock.keep_lease() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if old.outcome is not null then
    raise exception 'penstock: lease % has ended (%) and cannot change', old.id, old.outcome using errcode = 'PS001';
  end if;
  if (old.id, old.group_id, old.lane, old.lanes, old.binding, old.token, old.claimed_by, old.claimed_at, old.attempts,
      old.replay, old.members, old.low, old.high, old.holes, old.offsets, old.fresh, old.total, old.open_before)
     is distinct from
     (new.id, new.group_id, new.lane, new.lanes, new.binding, new.token, new.claimed_by, new.claimed_at, new.attempts,
      new.replay, new.members, new.low, new.high, new.holes, new.offsets, new.fresh, new.total, new.open_before) then
    raise exception 'penstock: what lease % contains cannot change', old.id using errcode = 'PS001';
  end if;
  if not exists (select 1 from penstock.test_clock) then
    raise exception 'penstock: lease % expired at %', old.id, old.expires_at using errcode = 'PS005';
  end if;
  return new;
end $$;
drop trigger if exists keep_lease on penstock.leases;
create trigger keep_lease before update on penstock.leases for each row
  when (old.outcome is not null
        or (old.expires_at <= now()
            and ((new.outcome = 'settled' and old.members > 0) or new.expires_at > old.expires_at))
        or (old.id, old.group_id, old.lane, old.lanes, old.binding, old.token, old.claimed_by, old.claimed_at,
            old.attempts, old.replay, old.members, old.low, old.high, old.holes, old.offsets, old.fresh, old.total,
            old.open_before)
           is distinct from
           (new.id, new.group_id, new.lane, new.lanes, new.binding, new.token, new.claimed_by, new.claimed_at,
            new.attempts, new.replay, new.members, new.low, new.high, new.holes, new.offsets, new.fresh, new.total,
            new.open_before))
  execute function penstock.keep_lease();
alter table penstock.leases enable always trigger keep_lease;

-- A lease takes nothing with it when it ends: what is not done waits to be claimed again, or has a row. (Asked of the
-- lease's members only where the ranges that came back do not cover it.)
create or replace function penstock.given_back() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  done constant bigint := case when new.outcome = 'settled' then greatest(new.upto, new.low) else new.low end;
begin
  if new.offsets is not null then
    perform 1 from penstock.deliveries d
      where d.group_id = new.group_id and d."offset" = any (new.offsets) and d.state = 'CLAIMED' and d.lease = new.id;
  elsif new.high - done > (select coalesce(sum(least(r.high, new.high) - greatest(r.low, done)), 0) from penstock.returned r
                            where r.group_id = new.group_id and r.lanes = new.lanes and r.lane = new.lane
                              and r.low < new.high and r.high > done) then
    perform 1 from penstock.groups g
      join penstock.bindings b on b.id = new.binding
     cross join lateral (select * from penstock.events where stream = g.stream and "offset" > done and "offset" <= new.high
                            and coalesce(bucket, mod("offset", 256)) * new.lanes / 256 = new.lane offset 0) e
     where g.group_id = new.group_id and (b.type_regex is null or e.event_type ~ b.type_regex)
       and (b.headers is null or e.headers @> b.headers) and e."offset" <> all (new.holes)
       and not exists (select 1 from penstock.deliveries d where d.group_id = new.group_id and d."offset" = e."offset")
       and not exists (select 1 from penstock.returned r
                        where r.group_id = new.group_id and r.lanes = new.lanes and r.lane = new.lane
                          and r.low < e."offset" and r.high >= e."offset");
  else
    return null;
  end if;
  if found then
    raise exception 'penstock: lease % cannot end (%): not all that it holds was given back', new.id, new.outcome
      using errcode = 'PS001', hint = 'Release, settle and reap do so.';
  end if;
  return null;
end $$;
drop trigger if exists given_back on penstock.leases;
create trigger given_back after update on penstock.leases for each row
  when (old.outcome is null and new.outcome is not null
        and (new.offsets is not null or (new.members > 0 and (new.outcome <> 'settled' or new.upto < new.high))))
  execute function penstock.given_back();
alter table penstock.leases enable always trigger given_back;

-- A range that waits to be claimed again is in no open lease, and goes only into one, or into other ranges that wait. (At
-- the end of the transaction: whoever claims removes it first.)
create or replace function penstock.keep_returned() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  me   xid := pg_current_xact_id()::xid;
  kept numeric;
begin
  if tg_op <> 'DELETE' then
    perform 1 from (select id, open_before from penstock.leases
                     where group_id = new.group_id and lanes = new.lanes and lane = new.lane order by id desc limit 1) n
     cross join lateral (select * from penstock.leases where id = any (n.open_before || n.id) offset 0) l
     where l.outcome is null and l.low < new.high and l.high > new.low;
    if found and exists (select 1 from penstock.returned where id = new.id) then
      raise exception 'penstock: (%, %] cannot wait to be claimed: it is in an open lease', new.low, new.high
        using errcode = 'PS001';
    end if;
  end if;
  if tg_op <> 'INSERT' and exists (select 1 from penstock.groups where group_id = old.group_id) then
    select sum((least(x.high, old.high) - greatest(x.low, old.low)) * old.lanes::numeric / x.lanes) into kept
      from (select r.low, r.high, r.lane, r.lanes from penstock.returned r where r.group_id = old.group_id
            union all
            select l.low, l.high, l.lane, l.lanes
              from (select *, xmin = me as ours from penstock.leases
                     where group_id = old.group_id and lanes = old.lanes and lane = old.lane order by id desc limit 300) l
             where l.ours and l.offsets is null and (l.outcome is null or l.outcome = 'settled')) x
     where x.low < old.high and x.high > old.low and x.lanes >= old.lanes and x.lane * old.lanes / x.lanes = old.lane;
    if coalesce(kept, 0) < old.high - old.low then
      raise exception 'penstock: (%, %] waits to be claimed and cannot be removed', old.low, old.high
        using errcode = 'PS001', hint = 'Claim it, or rewind the group.';
    end if;
  end if;
  return null;
end $$;
do $$
declare
  one text;
begin
  foreach one in array array['insert', 'delete', 'update'] loop
    execute format('drop trigger if exists keep_returned_%s on penstock.returned', one);
    execute format('create constraint trigger keep_returned_%s after %s on penstock.returned deferrable initially deferred '
                   'for each row %s execute function penstock.keep_returned()', one, one,
                   case one when 'update' then 'when ((old.group_id, old.lane, old.lanes, old.low, old.high) '
                                               'is distinct from (new.group_id, new.lane, new.lanes, new.low, new.high))'
                            else '' end);
    execute format('alter table penstock.returned enable always trigger keep_returned_%s', one);
  end loop;
end $$;

-- Rows go with a rewind, which puts the ranges back that they came from.
create or replace function penstock.remove_deliveries(a_group integer, above bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  removed bigint;
begin
  perform 1 from penstock.lane l
    join penstock.deliveries d on d.group_id = l.group_id and d.bucket * l.lanes / 256 = l.lane
   where l.group_id = a_group and d."offset" > above and d."offset" <= l.cursor
     and not exists (select 1 from penstock.returned r
                      where r.group_id = a_group and r.lanes = l.lanes and r.lane = l.lane
                        and r.low < d."offset" and r.high >= d."offset");
  if found then
    raise exception 'penstock: deliveries are removed only by a rewind, which puts their ranges back' using errcode = 'PS001';
  end if;
  perform set_config('penstock.maintenance', pg_current_xact_id()::text, true);
  delete from penstock.deliveries where group_id = a_group and "offset" > above;
  get diagnostics removed = row_count;
  perform set_config('penstock.maintenance', '', true);
  return removed;
end $$;

-- PUBLISHED and DEAD are written for members of an open lease that has not expired. Two others may bury: the reaper, and
-- an operator who kills. (Asked once a statement: a lease of a thousand rows is read once.)
create or replace function penstock.outcomes() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  said record;
  held record;
begin
  select bool_or(n.state = 'PUBLISHED') as published, max(n.updated_at) as at,
         bool_and(n.error_code = 'killed') as killed, bool_and(n.error_code = 'lease_expired') as reaped
    into said from after_it n where n.state in ('PUBLISHED', 'DEAD');
  if said.published is null then
    return null;
  end if;
  for held in
    select w.lease, w.group_id, l.id, l.outcome, l.expires_at, l.offsets
      from (select distinct b.lease, b.group_id from before_it b where b.state = 'CLAIMED') w
      left join penstock.leases l on l.id = w.lease and l.group_id = w.group_id
  loop
    if held.lease is null and said.killed and not said.published then
      continue;
    end if;
    if held.id is null or held.outcome is not null
       or exists (select b."offset" from before_it b where b.lease = held.lease and b.group_id = held.group_id
                  except select unnest(held.offsets)) then
      raise exception 'penstock: a delivery cannot become PUBLISHED or DEAD outside an open lease' using errcode = 'PS002';
    end if;
    if held.expires_at <= now() and not (said.reaped and not said.published)
       and not (held.expires_at > said.at and exists (select 1 from penstock.test_clock)) then
      raise exception 'penstock: lease % expired at %', held.id, held.expires_at using errcode = 'PS005';
    end if;
  end loop;
  return null;
end $$;
drop trigger if exists outcomes on penstock.deliveries;
create trigger outcomes after update on penstock.deliveries referencing old table as before_it new table as after_it
  for each statement execute function penstock.outcomes();
alter table penstock.deliveries enable always trigger outcomes;

-- A row is born as the outcome of an open lease that contains its offset …
create or replace function penstock.born() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  held record;
begin
  select l.expires_at into held from penstock.leases l
   where l.id = new.lease and l.group_id = new.group_id and l.outcome is null and l.offsets is null
     and new."offset" > l.low and new."offset" <= l.high and new."offset" <> all (l.holes)
     and new.bucket * l.lanes / 256 = l.lane;
  if not found or new.state not in ('DEAD', 'PUBLISHED') then
    raise exception 'penstock: a delivery cannot be born % outside its lease', new.state using errcode = 'PS002';
  end if;
  if held.expires_at <= now() and not (new.state = 'DEAD' and new.error_code = 'lease_expired')
     and not (held.expires_at > new.updated_at and exists (select 1 from penstock.test_clock)) then
    raise exception 'penstock: lease % expired at %', new.lease, held.expires_at using errcode = 'PS005';
  end if;
  new.lease := null;
  return new;
end $$;

-- … or PENDING, where no open lease contains it but one that this transaction has locked to end it. (A row that a lease
-- still holds would show its event twice. One look at the open leases of the group serves a whole statement.)
create or replace function penstock.born_pending() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  me   constant xid := pg_current_xact_id()::xid;
  held record;
begin
  for held in
    select o.group_id, o.lane, o.lanes, o.low, o.high, o.holes, o.id
      from (select distinct group_id from born) b
      join penstock.groups g on g.group_id = b.group_id
     cross join generate_series(0, g.lanes - 1) as a(lane)
     cross join lateral (select id, open_before from penstock.leases
                          where group_id = g.group_id and lanes = g.lanes and lane = a.lane order by id desc limit 1) n
     cross join lateral (select l.*, l.xmin = me or l.xmax = me as ours from penstock.leases l
                          where l.id = any(n.open_before || n.id) offset 0) o
     where o.outcome is null and o.offsets is null and not o.ours
  loop
    perform 1 from born b
      where b.group_id = held.group_id and b.state = 'PENDING' and b."offset" > held.low and b."offset" <= held.high
        and b.bucket * held.lanes / 256 = held.lane and b."offset" <> all (held.holes);
    if found then
      raise exception 'penstock: a delivery cannot be born PENDING: it is in lease %', held.id using errcode = 'PS002';
    end if;
  end loop;
  return null;
end $$;
drop trigger if exists born_pending on penstock.deliveries;
create trigger born_pending after insert on penstock.deliveries referencing new table as born
  for each statement execute function penstock.born_pending();
alter table penstock.deliveries enable always trigger born_pending;

-- Counts of a life go down only where a new life begins; what was so far stays counted.
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
  if (new.attempts < old.attempts or new.failures < old.failures)
     and not (old.state in ('PUBLISHED', 'DEAD') and new.state = 'PENDING') then
    raise exception 'penstock: attempts and failures never decrease within a lifecycle' using errcode = 'PS001';
  end if;
  if new.replays < old.replays or new.earlier_attempts < old.earlier_attempts then
    raise exception 'penstock: replays and earlier attempts never decrease' using errcode = 'PS001';
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
        or new.attempts < old.attempts or new.failures < old.failures or new.replays < old.replays
        or new.earlier_attempts < old.earlier_attempts)
  execute function penstock.keep_delivery();
alter table penstock.deliveries enable always trigger keep_delivery;

-- Who holds a delivery, and when it ended, changes with its state only. (Triggers run by name: this one after
-- `transition`, which names a pair that is none.)
create or replace function penstock.unmoved() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'penstock: who holds a delivery and when it ended change with its state only' using errcode = 'PS001';
end $$;
drop trigger if exists unmoved on penstock.deliveries;
create trigger unmoved before update on penstock.deliveries for each row
  when (old.state = new.state
        and (old.claimed_at, old.claimed_by, old.lease, old.published_at, old.dead_at)
            is distinct from (new.claimed_at, new.claimed_by, new.lease, new.published_at, new.dead_at))
  execute function penstock.unmoved();
alter table penstock.deliveries enable always trigger unmoved;

-- A standby has no advisory locks, and its sequence runs ahead of what was replayed. Its readers stop at this horizon,
-- which the primary's maintenance writes now and then and never reads itself.
create table if not exists penstock.standby_horizon (
  upto bigint not null,
  at   timestamptz not null default clock_timestamp()
);
insert into penstock.standby_horizon (upto) select 0 where not exists (select 1 from penstock.standby_horizon);

-- The server this log lives on. Elsewhere it is a copy: a restore, or a logical subscriber, whose apply announces nobody
-- and leaves sequences behind. `penstock doctor --repair` makes a copy a log of its own.
create table if not exists penstock.home (
  system_identifier bigint not null
);
insert into penstock.home (system_identifier)
select system_identifier from pg_control_system() where not exists (select 1 from penstock.home);

-- Every sequence of the log, where it stands, and the highest number that is stored anywhere: of the column it fills, and
-- of those that name its numbers. An offset below a cursor would never be delivered, even if no event has it.
create or replace function penstock.sequences() returns table (name text, last bigint, stored bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  own   record;
  named text;
  found bigint;
begin
  for own in
    select s.oid::regclass as sequence, t.relname, format('select max(%I)::bigint from %s', a.attname, t.oid::regclass) as query
      from pg_class s
      join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = s.oid and d.refclassid = 'pg_class'::regclass
                      and d.deptype in ('a', 'i')
      join pg_class t on t.oid = d.refobjid
      join pg_attribute a on a.attrelid = t.oid and a.attnum = d.refobjsubid
     where s.relkind = 'S' and s.relnamespace = (select relnamespace from pg_class where oid = 'penstock.events'::regclass)
     order by t.relname
  loop
    name := own.sequence::text;
    execute format('select case when is_called then last_value else last_value - 1 end from %s', own.sequence) into last;
    stored := 0;
    foreach named in array array[own.query] || case own.relname
      when 'events' then array['select max(high) from penstock.leases', 'select max(high) from penstock.returned',
                               'select max("offset") from penstock.deliveries', 'select max(upto) from penstock.pruned',
                               'select max(upto) from penstock.standby_horizon', 'select max(upto) from penstock.tally',
                               'select max(upto) from penstock.tally_mark',
                               'select max(from_offset) from penstock.bindings',
                               'select max(greatest(floor, (select max(s) from unnest(starts) s))) from penstock.groups']
      when 'leases' then array['select max(lease) from penstock.attempt_log', 'select max(lease) from penstock.deliveries',
                               'select max(lease) from penstock.reader_claims', 'select max(lease) from penstock.renames']
      when 'groups' then array['select max(group_id) from penstock.leases', 'select max(group_id) from penstock.deliveries',
                               'select max(group_id) from penstock.attempt_log', 'select max(group_id) from penstock.state',
                               'select max(group_id) from penstock.bindings', 'select max(group_id) from penstock.returned']
      when 'bindings' then array['select max(binding) from penstock.leases', 'select max(binding) from penstock.returned']
      when 'runs' then array['select max(run) from penstock.leases']
      else '{}'::text[] end
    loop
      execute named into found;
      stored := greatest(stored, found);
    end loop;
    return next;
  end loop;
end $$;
