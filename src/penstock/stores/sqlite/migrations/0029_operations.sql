-- Operations on many deliveries: stored, resumable, audited.

-- One row per operation. Its batches move deliveries and this row together, so that it goes on where it was, whoever runs
-- it. `filter` is JSON, as it was given. A dead letter belongs to it if it died at `cutoff_at` or before, an event if its
-- offset is `cutoff_offset` or lower. `token` grows with every runner: only the last one may move anything.
create table if not exists penstock_operations (
  id              integer primary key autoincrement,
  kind            text not null check (kind in ('redrive', 'replay', 'rewind', 'purge')),
  stream          text not null,
  group_name      text not null,
  group_id        integer not null,
  filter          text not null,
  cutoff_at       integer,
  cutoff_offset   integer,
  canary          integer check (canary > 0),
  rate_per_second real check (rate_per_second > 0),
  stop_on_return  integer check (stop_on_return > 0),
  reason          text,
  "by"            text not null,
  planned         integer not null,
  state           text not null check (state in ('running', 'paused', 'stopped', 'aborted', 'done', 'failed')),
  phase           text not null check (phase in ('canary', 'waiting', 'moving')),
  note            text,
  moved_upto      integer not null default 0,
  moved           integer not null default 0,
  returned        integer not null default 0,
  canaries        text not null default '[]',
  canaries_ended  integer not null default 0,
  rate_at         integer,
  next_at         integer not null,
  token           integer not null default 0,
  held_by         text,
  expires_at      integer,
  created_at      integer not null,
  started_at      integer,
  ended_at        integer,
  check ((cutoff_at is null) <> (cutoff_offset is null)),
  check ((ended_at is null) = (state in ('running', 'paused')))
);
create index if not exists penstock_operations_due on penstock_operations (next_at) where state = 'running';

-- The operation that moved a delivery last, by which it sees what comes back.
alter table penstock_deliveries add column operation integer;
create index if not exists penstock_deliveries_back on penstock_deliveries (operation)
 where operation is not null and state = 'DEAD';

-- Dead letters by kind of error, without those that were purged or mended.
create index if not exists penstock_deliveries_kind on penstock_deliveries (group_id, fingerprint, dead_at)
 where state = 'DEAD' and reason is not 'purged' and reason is not 'mended';

-- What halts a key: neither a dead letter that was skipped, nor one that was purged or mended.
create index if not exists penstock_deliveries_halting on penstock_deliveries (group_id, bucket, ordering_key, "offset")
 where state = 'DEAD' and reason is not 'skipped' and reason is not 'purged' and reason is not 'mended';

-- What people say about a kind of error of a group; `none` is the kind of those without a fingerprint.
create table if not exists penstock_fingerprint_notes (
  group_id    integer not null references penstock_groups (group_id) on delete cascade,
  fingerprint text not null,
  note        text,
  owner       text,
  muted       integer not null default 0,
  "by"        text not null,
  updated_at  integer not null,
  primary key (group_id, fingerprint)
) without rowid;

-- One row per transition, as before; a dead letter that is purged or mended stays DEAD.
drop view if exists penstock_history;
create view if not exists penstock_history as
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, a.ended_at as at, a.outcome,
       case when a.outcome = 'published' then 'PUBLISHED'
            when a.outcome in ('dead', 'killed', 'purged', 'mended') then 'DEAD' else 'PENDING' end as state,
       a.attempt, a.failures, a.replays, coalesce(a."by", a.claimed_by) as "by", a.claimed_by, a.claimed_at, a.ended_at,
       a.lease, a.error, a.error_code, a.error_type, a.fingerprint, g.group_id, 2 as step, a.id as line
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
-- … and the claim that each of them ended, if one did …
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, coalesce(k.kept_at, a.claimed_at),
       case when k.id is null then 'claimed' else 'kept' end, 'CLAIMED', a.attempt,
       a.failures - case when a.outcome in ('failed', 'dead') then 1 else 0 end, a.replays, a.claimed_by, a.claimed_by,
       a.claimed_at, null, a.lease, null, null, null, null, g.group_id, 1, a.id
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
  left join penstock_leases k on k.id = a.lease and k.kept_from is not null and k.offsets is null
 where a.claimed_at is not null
-- … or has not ended yet
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, d.claimed_at, 'claimed', 'CLAIMED', d.attempts,
       d.failures, d.replays, d.claimed_by, d.claimed_by, d.claimed_at, null, d.lease, null, null, null, null, d.group_id,
       1, null
  from penstock_deliveries d where d.state = 'CLAIMED'
-- claimed as part of a range: per number of lanes the one fresh lease that can contain the event …
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, l.claimed_at, 'claimed', 'CLAIMED', l.attempts, 0,
       l.replay, l.claimed_by, l.claimed_by, l.claimed_at, null, l.id, null, null, null, null, g.group_id, 1, null
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_lane_counts p on p.lanes <= g.lanes
 cross join penstock_leases l on l.id = (
         select f.id from penstock_leases f
          where f.group_id = g.group_id and f.lanes = p.lanes and f.lane = coalesce(e.bucket, e."offset" % 256) * p.lanes / 256
            and f.fresh = 1 and f.high >= e."offset" order by f.high limit 1)
 cross join penstock_bindings b on b.id = l.binding
 where l.low < e."offset"
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
   and not exists (select 1 from penstock_attempt_log a
                    where a.group_id = g.group_id and a."offset" = e."offset" and a.lease = l.id)
-- … and those that claimed it again
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type,
       coalesce(l.kept_at, l.claimed_at), case when l.kept_from is null then 'claimed' else 'kept' end, 'CLAIMED', l.attempts, 0,
       l.replay, l.claimed_by, l.claimed_by, l.claimed_at, null, l.id, null, null, null, null, g.group_id, 1, null
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_leases l indexed by penstock_leases_again on l.group_id = g.group_id
 cross join penstock_bindings b on b.id = l.binding
 where l.high >= e."offset" and l.low < e."offset" and l.offsets is null and l.fresh = 0
   and coalesce(e.bucket, e."offset" % 256) * l.lanes / 256 = l.lane
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
   and not exists (select 1 from penstock_attempt_log a
                    where a.group_id = g.group_id and a."offset" = e."offset" and a.lease = l.id)
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
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_lane_counts p on p.lanes <= g.lanes
 cross join penstock_leases l on l.id = (
         select f.id from penstock_leases f
          where f.group_id = g.group_id and f.lanes = p.lanes and f.lane = coalesce(e.bucket, e."offset" % 256) * p.lanes / 256
            and f.fresh = 1 and f.high >= e."offset" order by f.high limit 1)
 cross join penstock_bindings b on b.id = l.binding
 where l.low < e."offset"
   and l.outcome is not null
   and not exists (select 1 from penstock_leases k where k.kept_from = l.id and k.high = e."offset")
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
   and not exists (select 1 from penstock_attempt_log a
                    where a.group_id = g.group_id and a."offset" = e."offset" and a.lease = l.id)
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
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_leases l indexed by penstock_leases_again on l.group_id = g.group_id
 cross join penstock_bindings b on b.id = l.binding
 where l.high >= e."offset" and l.low < e."offset" and l.offsets is null and l.fresh = 0
   and coalesce(e.bucket, e."offset" % 256) * l.lanes / 256 = l.lane
   and l.outcome is not null
   and not exists (select 1 from penstock_leases k where k.kept_from = l.id and k.high = e."offset")
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
   and not exists (select 1 from penstock_attempt_log a
                    where a.group_id = g.group_id and a."offset" = e."offset" and a.lease = l.id)
-- what operators did to ranges
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, x.at, x.action, 'PENDING', 0, 0, x.replay, x."by",
       null, null, x.at, null, null, null, null, null, g.group_id, 3, null
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_range_actions x on x.group_id = g.group_id and x.low < e."offset" and x.high >= e."offset"
 cross join penstock_bindings b on b.id = x.binding
 where coalesce(e.bucket, e."offset" % 256) * x.lanes / 256 = x.lane
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and not exists (select 1 from penstock_attempt_log a
                    where a.group_id = g.group_id and a."offset" = e."offset" and a.range_action = x.replay);
