-- What happened to a delivery, over all its lives.

-- Up to where a rewind ended lives of rows: events below it may have been claimed before they were ever part of a range.
alter table penstock.groups add column if not exists rewound_upto bigint not null default 0;

-- The error of a whole range that came back: of which class, of which kind.
alter table penstock.leases add column if not exists error_type text;
alter table penstock.leases add column if not exists fingerprint text;
alter table penstock.returned add column if not exists error_type text;
alter table penstock.returned add column if not exists fingerprint text;

-- What an operator did to a range of events without rows: one row per lane and binding, however many events it has.
create table if not exists penstock.range_actions (
  id       bigint generated always as identity primary key,
  group_id integer not null,
  lane     smallint not null,
  lanes    smallint not null,
  binding  bigint not null,
  low      bigint not null,
  high     bigint not null,
  action   text not null,
  replay   integer not null,
  by       text not null,
  at       timestamptz not null,
  check (low < high)
);
create index if not exists range_actions_group on penstock.range_actions (group_id, high);
-- A row that went with such an action has a line of its own, which names it.
alter table penstock.attempt_log add column if not exists range_action integer;

create or replace function penstock.remove_range_actions() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from penstock.range_actions where group_id = old.group_id;
  return null;
end $$;
drop trigger if exists remove_range_actions on penstock.groups;
create trigger remove_range_actions after delete on penstock.groups for each row
  execute function penstock.remove_range_actions();

-- How often an event was claimed in all its lives: by the ranges that held it, as a row, and by those who killed it.
-- (`+ 0`: ranges are found by what they hold, not among all leases of the group.)
create or replace function penstock.claims_of(a_group integer, an_offset bigint, a_bucket integer) returns integer
language sql stable set search_path = pg_catalog, pg_temp as $$
  select (select count(*)::int from penstock.leases l
           where l.offsets is null and l.group_id + 0 = a_group and int8range(l.low, l.high, '(]') @> an_offset
             and a_bucket * l.lanes / 256 = l.lane and an_offset <> all (l.holes))
       + (select count(*)::int from penstock.attempt_log a
           where a.group_id = a_group and a."offset" = an_offset and a.claimed_at is not null
             and not exists (select 1 from penstock.leases l where l.id = a.lease and l.offsets is null))
$$;

-- What an earlier version has not written down but left to be seen: the success of a row stands in the lease that ended at
-- the same moment …
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, claimed_by, claimed_at, ended_at,
                                  lease)
select d.group_id, d."offset", d.attempts, d.failures, d.replays, 'published', l.claimed_by, l.claimed_at, d.published_at, l.id
  from (select id, group_id, claimed_by, claimed_at, ended_at, unnest(offsets) as "offset" from penstock.leases
         where offsets is not null and outcome = 'settled') l
  join penstock.deliveries d on d.group_id = l.group_id and d."offset" = l."offset"
 where d.state = 'PUBLISHED' and d.published_at = l.ended_at
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = d.group_id and a."offset" = d."offset" and a.lease = l.id);
-- … and the attempts of earlier lives in leases and lines. (What is in work first: no trigger takes it for an outcome.)
update penstock.deliveries
   set earlier_attempts = penstock.claims_of(group_id, "offset", bucket) + 1 - attempts
 where state = 'CLAIMED' and penstock.claims_of(group_id, "offset", bucket) + 1 > attempts;
update penstock.deliveries
   set earlier_attempts = penstock.claims_of(group_id, "offset", bucket) - attempts
 where state <> 'CLAIMED' and penstock.claims_of(group_id, "offset", bucket) > attempts;
update penstock.groups g
   set rewound_upto = (select coalesce(max(a."offset"), 0) from penstock.attempt_log a
                        where a.group_id = g.group_id and a.outcome = 'rewound')
 where rewinds > 0;

create or replace view penstock.delivery as
-- rows: one arm a state, so that `state = 'DEAD'` leaves one arm that reads only deliveries
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PENDING'::text as state, d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts as total_attempts, d.error_type, d.fingerprint, d.replays
  from penstock.deliveries d where d.state = 'PENDING'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'CLAIMED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts, d.error_type, d.fingerprint, d.replays
  from penstock.deliveries d where d.state = 'CLAIMED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PUBLISHED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, null, null, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts, null, null, d.replays
  from penstock.deliveries d where d.state = 'PUBLISHED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'DEAD', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts, d.error_type, d.fingerprint, d.replays
  from penstock.deliveries d where d.state = 'DEAD'
-- beyond the cursor of its lane
union all
select l.stream, l.group_name, e."offset", e.event_id, e.event_type, 'PENDING', 0, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, null, null,
       e.created_at, e.ordering_key, null, l.group_id,
       case when e."offset" > (select rewound_upto from penstock.groups where group_id = l.group_id) then 0
            else penstock.claims_of(l.group_id, e."offset", coalesce(e.bucket, mod(e."offset", 256))::int) end, null, null, 0
  from penstock.lane l
  join penstock.binding_span b on b.group_id = l.group_id
  join penstock.events e on e.stream = l.stream and e."offset" > l.cursor and e."offset" > b.low and e."offset" <= b.high
 where coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.deliveries d where d.group_id = l.group_id and d."offset" = e."offset")
-- came back and waits to be claimed again
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'PENDING', r.attempts, 0,
       r.available_at, null, null, r.last_error, r.error_code, r.reason, null, null,
       r.returned_at, e.ordering_key, null, r.group_id,
       case when r.replay = 0 and e."offset" > g.rewound_upto then r.attempts
            else penstock.claims_of(r.group_id, e."offset", coalesce(e.bucket, mod(e."offset", 256))::int) end, r.error_type, r.fingerprint, r.replay
  from penstock.returned r
  join penstock.groups g on g.group_id = r.group_id
  join penstock.bindings b on b.id = r.binding
  join penstock.events e on e.stream = g.stream and e."offset" > r.low and e."offset" <= r.high
 where coalesce(e.bucket, mod(e."offset", 256)) * r.lanes / 256 = r.lane
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.deliveries d where d.group_id = r.group_id and d."offset" = e."offset")
-- in an open lease
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'CLAIMED', l.attempts, 0,
       coalesce(e.available_at, e.created_at), l.claimed_at, l.claimed_by, null, null, null, null, null,
       l.claimed_at, e.ordering_key, l.id, l.group_id,
       case when l.replay = 0 and e."offset" > g.rewound_upto then l.attempts
            else penstock.claims_of(l.group_id, e."offset", coalesce(e.bucket, mod(e."offset", 256))::int) end, null, null, l.replay
  from penstock.open_lease l
  join penstock.groups g on g.group_id = l.group_id
  join penstock.bindings b on b.id = l.binding
  join penstock.events e on e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
 where l.offsets is null
   and coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and e."offset" <> all (l.holes)
-- finished as part of a range: the newest lease that has the event, and has not given it back, has settled it
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'PUBLISHED', l.attempts, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, l.ended_at, null,
       l.ended_at, e.ordering_key, l.id, l.group_id,
       case when l.replay = 0 and e."offset" > g.rewound_upto then l.attempts
            else penstock.claims_of(l.group_id, e."offset", coalesce(e.bucket, mod(e."offset", 256))::int) end, null, null, l.replay
  from penstock.events e
  join penstock.groups g on g.stream = e.stream
 cross join lateral (select * from penstock.leases
                      where low < e."offset" and high >= e."offset"  -- for a few leases; the next line finds one of many
                        and int8range(low, high, '(]') @> e."offset" and offsets is null and group_id = g.group_id
                        and coalesce(e.bucket, mod(e."offset", 256)) * lanes / 256 = lane and e."offset" <> all (holes)
                        and (outcome is null or (outcome = 'settled' and upto >= e."offset"))
                      order by id desc limit 1) l
  join penstock.bindings b on b.id = l.binding
 where l.outcome = 'settled'
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.deliveries d where d.group_id = l.group_id and d."offset" = e."offset")
   and not exists (select 1 from penstock.returned r
                    where r.group_id = l.group_id and r.low < e."offset" and r.high >= e."offset"
                      and coalesce(e.bucket, mod(e."offset", 256)) * r.lanes / 256 = r.lane);

-- One row per transition. Claims and successes of ranges follow from the leases; what has or had a row of its own has
-- lines in the attempt log. First what the lines say …
create or replace view penstock.history as
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, a.ended_at as at, a.outcome,
       case when a.outcome = 'published' then 'PUBLISHED' when a.outcome in ('dead', 'killed') then 'DEAD' else 'PENDING' end as state,
       a.attempt, a.failures, a.replays, coalesce(a.by, a.claimed_by) as by, a.claimed_by, a.claimed_at, a.ended_at,
       a.lease, a.error, a.error_code, a.error_type, a.fingerprint, g.group_id, 2 as step, a.id as line
  from penstock.events e
  join penstock.groups g on g.stream = e.stream
  join penstock.attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
-- … and the claim that each of them ended, if one did …
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, a.claimed_at, 'claimed', 'CLAIMED', a.attempt,
       a.failures - case when a.outcome in ('failed', 'dead') then 1 else 0 end, a.replays, a.claimed_by, a.claimed_by,
       a.claimed_at, null, a.lease, null, null, null, null, g.group_id, 1, a.id
  from penstock.events e
  join penstock.groups g on g.stream = e.stream
  join penstock.attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
 where a.claimed_at is not null
-- … or has not ended yet
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, d.claimed_at, 'claimed', 'CLAIMED', d.attempts,
       d.failures, d.replays, d.claimed_by, d.claimed_by, d.claimed_at, null, d.lease, null, null, null, null, d.group_id,
       1, null
  from penstock.deliveries d where d.state = 'CLAIMED'
-- claimed as part of a range
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, l.claimed_at, 'claimed', 'CLAIMED', l.attempts, 0,
       l.replay, l.claimed_by, l.claimed_by, l.claimed_at, null, l.id, null, null, null, null, g.group_id, 1, null
  from penstock.events e
  join penstock.leases l on l.low < e."offset" and l.high >= e."offset" and int8range(l.low, l.high, '(]') @> e."offset"
                        and l.offsets is null
  join penstock.groups g on g.group_id = l.group_id and g.stream = e.stream
  join penstock.bindings b on b.id = l.binding
 where coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane and e."offset" <> all (l.holes)
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = l.group_id and a."offset" = e."offset" and a.lease = l.id)
-- and what became of it there
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, l.ended_at,
       case when l.outcome = 'settled' and l.upto >= e."offset" then 'published'
            when l.outcome = 'expired' then 'expired' else 'released' end,
       case when l.outcome = 'settled' and l.upto >= e."offset" then 'PUBLISHED' else 'PENDING' end, l.attempts, 0,
       l.replay, l.claimed_by, l.claimed_by, l.claimed_at, l.ended_at, l.id,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.last_error end,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.error_code end,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.error_type end,
       case when l.outcome <> 'settled' or l.upto < e."offset" then l.fingerprint end, g.group_id, 2, null
  from penstock.events e
  join penstock.leases l on l.low < e."offset" and l.high >= e."offset" and int8range(l.low, l.high, '(]') @> e."offset"
                        and l.offsets is null
  join penstock.groups g on g.group_id = l.group_id and g.stream = e.stream
  join penstock.bindings b on b.id = l.binding
 where l.outcome is not null
   and coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane and e."offset" <> all (l.holes)
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = l.group_id and a."offset" = e."offset" and a.lease = l.id)
-- what operators did to ranges
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, x.at, x.action, 'PENDING', 0, 0, x.replay, x.by, null,
       null, x.at, null, null, null, null, null, g.group_id, 3, null
  from penstock.events e
  join penstock.groups g on g.stream = e.stream
  join penstock.range_actions x on x.group_id = g.group_id and x.low < e."offset" and x.high >= e."offset"
  join penstock.bindings b on b.id = x.binding
 where coalesce(e.bucket, mod(e."offset", 256)) * x.lanes / 256 = x.lane
   and (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = x.group_id and a."offset" = e."offset" and a.range_action = x.replay);

-- The names of the second page that Penstock follows; its dead-letter query runs against this view as it is written there.
create or replace view penstock.vulkan_deliveries as
select "offset" as event_offset, stream, group_name as consumer_group,
       case state when 'PENDING' then 'ready' when 'CLAIMED' then 'processing' when 'PUBLISHED' then 'done' else 'dead' end
         as status,
       attempts, available_at as run_at, claimed_at as locked_at, claimed_by as locked_by, last_error, updated_at
  from penstock.delivery;
