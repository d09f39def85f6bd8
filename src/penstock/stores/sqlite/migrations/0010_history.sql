-- What happened to a delivery, over all its lives.

-- Up to where a rewind ended lives of rows: events below it may have been claimed before they were ever part of a range.
alter table penstock_groups add column rewound_upto integer not null default 0;

-- The error of a whole range that came back: of which class, of which kind.
alter table penstock_leases add column error_type text;
alter table penstock_leases add column fingerprint text;
alter table penstock_returned add column error_type text;
alter table penstock_returned add column fingerprint text;

-- What an operator did to a range of events without rows: one row per lane and binding, however many events it has.
create table if not exists penstock_range_actions (
  id       integer primary key autoincrement,
  group_id integer not null,
  lane     integer not null,
  lanes    integer not null,
  binding  integer not null,
  low      integer not null,
  high     integer not null,
  action   text not null,
  replay   integer not null,
  "by"     text not null,
  at       integer not null,
  check (low < high)
);
create index if not exists penstock_range_actions_group on penstock_range_actions (group_id, high);
-- A row that went with such an action has a line of its own, which names it.
alter table penstock_attempt_log add column range_action integer;
create trigger if not exists penstock_range_actions_group_deleted after delete on penstock_groups
begin
  delete from penstock_range_actions where group_id = old.group_id;
end;

-- What an earlier version has not written down but left to be seen: the success of a row stands in the lease that ended at
-- the same moment …
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, claimed_by, claimed_at, ended_at,
                                  lease)
select d.group_id, d."offset", d.attempts, d.failures, d.replays, 'published', l.claimed_by, l.claimed_at, d.published_at, l.id
  from penstock_leases l cross join json_each(l.offsets) o
 cross join penstock_deliveries d on d.group_id = l.group_id and d."offset" = o.value
 where l.offsets is not null and l.outcome = 'settled' and d.state = 'PUBLISHED' and d.published_at = l.ended_at
   and not exists (select 1 from penstock_attempt_log a
                    where a.group_id = d.group_id and a."offset" = d."offset" and a.lease = l.id);
-- … and the attempts of earlier lives in leases and lines.
update penstock_deliveries
   set earlier_attempts = max(0,
       (select count(*) from penstock_leases c
          where c.group_id = penstock_deliveries.group_id and c.offsets is null
            and c.high >= penstock_deliveries."offset" and c.low < penstock_deliveries."offset"
            and penstock_deliveries.bucket * c.lanes / 256 = c.lane
            and penstock_deliveries."offset" not in (select value from json_each(c.holes)))
     + (select count(*) from penstock_attempt_log a
         where a.group_id = penstock_deliveries.group_id and a."offset" = penstock_deliveries."offset"
           and a.claimed_at is not null
           and not exists (select 1 from penstock_leases c where c.id = a.lease and c.offsets is null))
     + (state = 'CLAIMED') - attempts);
update penstock_groups
   set rewound_upto = (select coalesce(max(a."offset"), 0) from penstock_attempt_log a
                        where a.group_id = penstock_groups.group_id and a.outcome = 'rewound')
 where rewinds > 0;

drop view if exists penstock_delivery;
create view if not exists penstock_delivery as
-- rows: one arm a state, so that `state = 'DEAD'` leaves one arm that reads only deliveries
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PENDING' as state, d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts as total_attempts, d.error_type, d.fingerprint, d.replays
  from penstock_deliveries d where d.state = 'PENDING'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'CLAIMED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts, d.error_type, d.fingerprint, d.replays
  from penstock_deliveries d where d.state = 'CLAIMED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PUBLISHED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, null, null, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts, null, null, d.replays
  from penstock_deliveries d where d.state = 'PUBLISHED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'DEAD', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id,
       d.earlier_attempts + d.attempts, d.error_type, d.fingerprint, d.replays
  from penstock_deliveries d where d.state = 'DEAD'
-- beyond the cursor of its lane
union all
select l.stream, l.group_name, e."offset", e.event_id, e.event_type, 'PENDING', 0, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, null, null,
       e.created_at, e.ordering_key, null, l.group_id,
       case when e."offset" > (select rewound_upto from penstock_groups where group_id = l.group_id) then 0 else
         ((select count(*) from penstock_leases c
          where c.group_id = l.group_id and c.offsets is null and c.high >= e."offset" and c.low < e."offset"
            and coalesce(e.bucket, e."offset" % 256) * c.lanes / 256 = c.lane and e."offset" not in (select value from json_each(c.holes)))
        + (select count(*) from penstock_attempt_log a
            where a.group_id = l.group_id and a."offset" = e."offset" and a.claimed_at is not null
              and not exists (select 1 from penstock_leases c where c.id = a.lease and c.offsets is null))) end, null, null, 0
  from penstock_lane l
 cross join penstock_binding_span b on b.group_id = l.group_id
 cross join penstock_events e on e.stream = l.stream and e."offset" > l.cursor and e."offset" > b.low and e."offset" <= b.high
 where coalesce(e.bucket, e."offset" % 256) * l.lanes / 256 = l.lane
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.binding and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and not exists (select 1 from penstock_deliveries d where d.group_id = l.group_id and d."offset" = e."offset")
-- came back and waits to be claimed again
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'PENDING', r.attempts, 0,
       r.available_at, null, null, r.last_error, r.error_code, r.reason, null, null,
       coalesce(r.returned_at, e.created_at), e.ordering_key, null, g.group_id,
       case when r.replay = 0 and e."offset" > g.rewound_upto then r.attempts else
         ((select count(*) from penstock_leases c
          where c.group_id = g.group_id and c.offsets is null and c.high >= e."offset" and c.low < e."offset"
            and coalesce(e.bucket, e."offset" % 256) * c.lanes / 256 = c.lane and e."offset" not in (select value from json_each(c.holes)))
        + (select count(*) from penstock_attempt_log a
            where a.group_id = g.group_id and a."offset" = e."offset" and a.claimed_at is not null
              and not exists (select 1 from penstock_leases c where c.id = a.lease and c.offsets is null))) end, r.error_type, r.fingerprint, r.replay
  from penstock_groups g
 cross join penstock_returned r on r.group_id = g.group_id
 cross join penstock_bindings b on b.id = r.binding
 cross join penstock_events e on e.stream = g.stream and e."offset" > r.low and e."offset" <= r.high
 where coalesce(e.bucket, e."offset" % 256) * r.lanes / 256 = r.lane
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and not exists (select 1 from penstock_deliveries d where d.group_id = g.group_id and d."offset" = e."offset")
-- in an open lease
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'CLAIMED', l.attempts, 0,
       coalesce(e.available_at, e.created_at), l.claimed_at, l.claimed_by, null, null, null, null, null,
       l.claimed_at, e.ordering_key, l.id, g.group_id,
       case when l.replay = 0 and e."offset" > g.rewound_upto then l.attempts else
         ((select count(*) from penstock_leases c
          where c.group_id = g.group_id and c.offsets is null and c.high >= e."offset" and c.low < e."offset"
            and coalesce(e.bucket, e."offset" % 256) * c.lanes / 256 = c.lane and e."offset" not in (select value from json_each(c.holes)))
        + (select count(*) from penstock_attempt_log a
            where a.group_id = g.group_id and a."offset" = e."offset" and a.claimed_at is not null
              and not exists (select 1 from penstock_leases c where c.id = a.lease and c.offsets is null))) end, null, null, l.replay
  from penstock_groups g
 cross join penstock_leases l indexed by penstock_leases_open on l.group_id = g.group_id
 cross join penstock_bindings b on b.id = l.binding
 cross join penstock_events e on e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
 where l.outcome is null and l.offsets is null
   and coalesce(e.bucket, e."offset" % 256) * l.lanes / 256 = l.lane
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
-- finished as part of a range; the newest lease of an event counts. First what was claimed once: per number of lanes
-- the one fresh lease that can contain the event, so that a page, or one event, costs no look at the others …
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'PUBLISHED', l.attempts, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, l.ended_at, null,
       l.ended_at, e.ordering_key, l.id, g.group_id,
       case when l.replay = 0 and e."offset" > g.rewound_upto then l.attempts else
         ((select count(*) from penstock_leases c
          where c.group_id = g.group_id and c.offsets is null and c.high >= e."offset" and c.low < e."offset"
            and coalesce(e.bucket, e."offset" % 256) * c.lanes / 256 = c.lane and e."offset" not in (select value from json_each(c.holes)))
        + (select count(*) from penstock_attempt_log a
            where a.group_id = g.group_id and a."offset" = e."offset" and a.claimed_at is not null
              and not exists (select 1 from penstock_leases c where c.id = a.lease and c.offsets is null))) end, null, null, l.replay
  from penstock_groups g
 cross join penstock_events e indexed by penstock_events_stream on e.stream = g.stream
 cross join penstock_lane_counts p on p.lanes <= g.lanes
 cross join penstock_leases l on l.id = (
         select f.id from penstock_leases f
          where f.group_id = g.group_id and f.lanes = p.lanes and f.lane = coalesce(e.bucket, e."offset" % 256) * p.lanes / 256
            and f.fresh = 1 and f.high >= e."offset" order by f.high limit 1)
 cross join penstock_bindings b on b.id = l.binding
 where l.outcome = 'settled' and e."offset" > l.low and e."offset" <= l.upto
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
   and not exists (select 1 from penstock_deliveries d where d.group_id = g.group_id and d."offset" = e."offset")
   and not exists (select 1 from penstock_returned r
                    where r.group_id = g.group_id and r.low < e."offset" and r.high >= e."offset"
                      and coalesce(e.bucket, e."offset" % 256) * r.lanes / 256 = r.lane)
   and not exists (select 1 from penstock_leases n
                    where n.group_id = g.group_id and n.high >= e."offset" and n.low < e."offset"
                      and n.offsets is null and n.fresh = 0 and n.id > l.id
                      and coalesce(e.bucket, e."offset" % 256) * n.lanes / 256 = n.lane
                      and (n.holes = '[]' or e."offset" not in (select value from json_each(n.holes)))
                      and (n.outcome is null or (n.outcome = 'settled' and n.upto >= e."offset")))
-- … then what was claimed again
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'PUBLISHED', l.attempts, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, l.ended_at, null,
       l.ended_at, e.ordering_key, l.id, g.group_id,
       case when l.replay = 0 and e."offset" > g.rewound_upto then l.attempts else
         ((select count(*) from penstock_leases c
          where c.group_id = g.group_id and c.offsets is null and c.high >= e."offset" and c.low < e."offset"
            and coalesce(e.bucket, e."offset" % 256) * c.lanes / 256 = c.lane and e."offset" not in (select value from json_each(c.holes)))
        + (select count(*) from penstock_attempt_log a
            where a.group_id = g.group_id and a."offset" = e."offset" and a.claimed_at is not null
              and not exists (select 1 from penstock_leases c where c.id = a.lease and c.offsets is null))) end, null, null, l.replay
  from penstock_groups g
 cross join penstock_leases l indexed by penstock_leases_again on l.group_id = g.group_id
 cross join penstock_bindings b on b.id = l.binding
 cross join penstock_events e on e.stream = g.stream and e."offset" > l.low and e."offset" <= l.upto
 where l.outcome = 'settled' and l.offsets is null and l.fresh = 0
   and coalesce(e.bucket, e."offset" % 256) * l.lanes / 256 = l.lane
   and (b.types is null or exists (
         select 1 from penstock_binding_types t where t.binding = b.id and e.event_type glob t."glob"
            and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
   and (b.headers is null or not exists (
         select 1 from json_each(b.headers) h
          where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
   and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
   and not exists (select 1 from penstock_deliveries d where d.group_id = g.group_id and d."offset" = e."offset")
   and not exists (select 1 from penstock_returned r
                    where r.group_id = g.group_id and r.low < e."offset" and r.high >= e."offset"
                      and coalesce(e.bucket, e."offset" % 256) * r.lanes / 256 = r.lane)
   and not exists (select 1 from penstock_leases n
                    where n.group_id = g.group_id and n.high >= e."offset" and n.low < e."offset"
                      and n.offsets is null and n.fresh = 0 and n.id > l.id
                      and coalesce(e.bucket, e."offset" % 256) * n.lanes / 256 = n.lane
                      and (n.holes = '[]' or e."offset" not in (select value from json_each(n.holes)))
                      and (n.outcome is null or (n.outcome = 'settled' and n.upto >= e."offset")));

-- One row per transition. Claims and successes of ranges follow from the leases; what has or had a row of its own has
-- lines in the attempt log. First what the lines say …
create view if not exists penstock_history as
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, a.ended_at as at, a.outcome,
       case when a.outcome = 'published' then 'PUBLISHED' when a.outcome in ('dead', 'killed') then 'DEAD' else 'PENDING' end as state,
       a.attempt, a.failures, a.replays, coalesce(a."by", a.claimed_by) as "by", a.claimed_by, a.claimed_at, a.ended_at,
       a.lease, a.error, a.error_code, a.error_type, a.fingerprint, g.group_id, 2 as step, a.id as line
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
-- … and the claim that each of them ended, if one did …
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, a.claimed_at, 'claimed', 'CLAIMED', a.attempt,
       a.failures - case when a.outcome in ('failed', 'dead') then 1 else 0 end, a.replays, a.claimed_by, a.claimed_by,
       a.claimed_at, null, a.lease, null, null, null, null, g.group_id, 1, a.id
  from penstock_events e
 cross join penstock_groups g on g.stream = e.stream
 cross join penstock_attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
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
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, l.claimed_at, 'claimed', 'CLAIMED', l.attempts, 0,
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

-- The names of the second page that Penstock follows; its dead-letter query runs against this view as it is written there.
create view if not exists penstock_vulkan_deliveries as
select "offset" as event_offset, stream, group_name as consumer_group,
       case state when 'PENDING' then 'ready' when 'CLAIMED' then 'processing' when 'PUBLISHED' then 'done' else 'dead' end
         as status,
       attempts, available_at as run_at, claimed_at as locked_at, claimed_by as locked_by, last_error, updated_at
  from penstock_delivery;
