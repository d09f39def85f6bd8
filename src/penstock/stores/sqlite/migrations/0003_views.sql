-- What plain SQL sees: one row per event and group, however it is stored.

-- `starts` has one entry a lane.
create view if not exists penstock_lane as
select g.group_id, g.stream, g.group_name, s.key as lane, g.lanes,
       coalesce((select max(c.high) from penstock_leases c
                  where c.group_id = g.group_id and c.lanes = g.lanes and c.lane = s.key and c.fresh = 1),
                s.value) as cursor
  from penstock_groups g cross join json_each(g.starts) s;

create view if not exists penstock_binding_span as
select group_id, id as binding, types, type_regex, headers,
       case when row_number() over earlier = 1 then -1 else from_offset end as low,
       coalesce(lead(from_offset) over earlier, 9223372036854775807) as high
  from penstock_bindings window earlier as (partition by group_id order by from_offset, id);

-- A group has 1, 2, 4, … lanes.
create table if not exists penstock_lane_counts (lanes integer primary key);
insert or ignore into penstock_lane_counts (lanes) values (1), (2), (4), (8), (16), (32), (64), (128), (256);

create view if not exists penstock_delivery as
-- rows: one arm a state, so that `state = 'DEAD'` leaves one arm that reads only deliveries
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PENDING' as state, d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock_deliveries d where d.state = 'PENDING'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'CLAIMED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock_deliveries d where d.state = 'CLAIMED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PUBLISHED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock_deliveries d where d.state = 'PUBLISHED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'DEAD', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock_deliveries d where d.state = 'DEAD'
-- beyond the cursor of its lane
union all
select l.stream, l.group_name, e."offset", e.event_id, e.event_type, 'PENDING', 0, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, null, null,
       e.created_at, e.ordering_key, null, l.group_id
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
       r.available_at, null, null, r.last_error, null, r.reason, null, null,
       e.created_at, e.ordering_key, null, g.group_id
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
       l.claimed_at, e.ordering_key, l.id, g.group_id
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
       l.ended_at, e.ordering_key, l.id, g.group_id
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
       l.ended_at, e.ordering_key, l.id, g.group_id
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

-- The specification's second vocabulary.
create view if not exists penstock_delivery_v2 as
select stream, group_name, "offset", event_id, event_type,
       case state when 'CLAIMED' then 'DELIVERING' when 'PUBLISHED' then 'DELIVERED' else state end as status,
       attempts, available_at, claimed_at as locked_at, claimed_by as locked_by, last_error, published_at as delivered_at,
       updated_at, ordering_key
  from penstock_delivery;
