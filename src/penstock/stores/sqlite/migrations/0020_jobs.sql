-- Jobs: the events of streams `jobs:<queue>:<priority>:<type>`, each with the one group `workers`.

-- When the holder of a lease last said that it is alive.
alter table penstock_leases add column heartbeat_at integer;

-- A lease that a settle opened for one event of another lease, which goes on: the same attempt, kept.
alter table penstock_leases add column kept_from integer;
alter table penstock_leases add column kept_at integer;
create index if not exists penstock_leases_kept on penstock_leases (kept_from) where kept_from is not null;

create trigger if not exists penstock_leases_kept_for_good before update of kept_from, kept_at on penstock_leases
when old.kept_from is not new.kept_from or old.kept_at is not new.kept_at
begin
  select raise(abort, 'penstock: what a lease was kept from cannot change');
end;

-- Who holds a delivery, and when it ended, changes with its state only; but a row that goes on changes its lease.
drop trigger if exists penstock_deliveries_unmoved;
create trigger penstock_deliveries_unmoved after update on penstock_deliveries
when old.state = new.state
 and (old.claimed_at is not new.claimed_at or old.claimed_by is not new.claimed_by
      or old.published_at is not new.published_at
      or (old.lease is not new.lease and (new.state = 'CLAIMED' or new.lease is not null)
          and not exists (select 1 from penstock_leases k
                           where k.id = new.lease and k.kept_from = old.lease and k.outcome is null
                             and k.offsets = json_array(new."offset")))
      or (old.dead_at is not new.dead_at and new.state = 'DEAD' and old.dead_at is not null))
begin
  select raise(abort, 'penstock: who holds a delivery and when it ended change with its state only');
end;

-- The views, which count what was kept as the same attempt, and call it kept.
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
          where c.group_id = l.group_id and c.offsets is null and c.kept_from is null and c.high >= e."offset" and c.low < e."offset"
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
          where c.group_id = g.group_id and c.offsets is null and c.kept_from is null and c.high >= e."offset" and c.low < e."offset"
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
          where c.group_id = g.group_id and c.offsets is null and c.kept_from is null and c.high >= e."offset" and c.low < e."offset"
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
          where c.group_id = g.group_id and c.offsets is null and c.kept_from is null and c.high >= e."offset" and c.low < e."offset"
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
          where c.group_id = g.group_id and c.offsets is null and c.kept_from is null and c.high >= e."offset" and c.low < e."offset"
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

drop view if exists penstock_history;
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

-- How much of a group may be in work at once, and how many events a second it may claim, over all workers.
alter table penstock_groups add column max_in_flight integer check (max_in_flight > 0);
alter table penstock_groups add column rate_per_second real check (rate_per_second > 0);

-- What is left of a rate: tokens that grow with time. The name is that of a group, or of a job type.
create table if not exists penstock_rates (
  name   text primary key,
  tokens real not null,
  at     integer not null
);

-- What an app has declared of a job type: the schema of its payloads, and the policy of its groups.
create table if not exists penstock_job_types (
  queue           text not null,
  job_type        text not null,
  schema          text,
  lease_seconds   real not null,
  max_attempts    integer not null,
  base_seconds    real not null,
  factor          real not null,
  cap_seconds     real not null,
  jitter          real not null,
  max_age_seconds real,
  max_in_flight   integer,
  rate_per_second real,
  declared_at     integer not null,
  primary key (queue, job_type)
) without rowid;

-- Jobs that are submitted again and again; `next_at` is when the next run is due.
create table if not exists penstock_schedules (
  name         text primary key,
  cron         text not null,
  tz           text not null,
  job_type     text not null,
  queue        text not null,
  priority     integer not null,
  payload      text not null,
  max_attempts integer,
  suspended    integer not null default 0,
  created_at   integer not null,
  next_at      integer not null,
  last_at      integer,
  last_job     text
);

-- What a job says of itself: how far it is, and what it returned.
create table if not exists penstock_job_notes (
  "offset"   integer primary key,
  progress   real check (progress between 0 and 1),
  message    text,
  result     text,
  updated_at integer not null
);

-- Running jobs that somebody wants to end: their workers are told with the next heartbeat.
create table if not exists penstock_job_cancels (
  "offset" integer primary key,
  by       text not null,
  asked_at integer not null
);

-- Who has a unique key. A row counts while its job is unfinished, and until its time: a success writes nothing here.
create table if not exists penstock_job_unique (
  queue      text not null,
  job_type   text not null,
  unique_key text not null,
  event_id   text not null,
  until_at   integer,
  primary key (queue, job_type, unique_key)
) without rowid;
