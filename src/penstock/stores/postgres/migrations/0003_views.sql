-- What plain SQL sees: one row per event and group, however it is stored.

create or replace view penstock.lane as
select g.group_id, g.stream, g.group_name, (l.number - 1)::smallint as lane, g.lanes,
       coalesce((select max(c.high) from penstock.leases c
                  where c.group_id = g.group_id and c.lanes = g.lanes and c.lane = l.number - 1 and c.fresh),
                l.start) as cursor
  from penstock.groups g cross join lateral unnest(g.starts) with ordinality as l(start, number);

create or replace view penstock.binding_span as
select group_id, id as binding, type_regex, headers,
       case when row_number() over earlier = 1 then -1 else from_offset end as low,
       coalesce(lead(from_offset) over earlier, 9223372036854775807) as high
  from penstock.bindings window earlier as (partition by group_id order by from_offset, id);

-- The newest lease of a lane names those that were open before it. (`offset 0` keeps the plan from mixing the steps.)
create or replace view penstock.open_lease as
select o.*
  from penstock.groups g
 cross join lateral unnest(g.starts) with ordinality as l(start, number)
 cross join lateral (select id, open_before from penstock.leases
                      where group_id = g.group_id and lanes = g.lanes and lane = l.number - 1
                      order by id desc limit 1) n
 cross join lateral (select * from penstock.leases where id = any(n.open_before || n.id) offset 0) o
 where o.outcome is null;

create or replace view penstock.delivery as
-- rows: one arm a state, so that `state = 'DEAD'` leaves one arm that reads only deliveries
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PENDING'::text as state, d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock.deliveries d where d.state = 'PENDING'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'CLAIMED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock.deliveries d where d.state = 'CLAIMED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'PUBLISHED', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock.deliveries d where d.state = 'PUBLISHED'
union all
select d.stream, d.group_name, d."offset", d.event_id, d.event_type, 'DEAD', d.attempts, d.failures,
       d.available_at, d.claimed_at, d.claimed_by, d.last_error, d.error_code, d.reason, d.published_at, d.dead_at,
       d.updated_at, d.ordering_key, d.lease, d.group_id
  from penstock.deliveries d where d.state = 'DEAD'
-- beyond the cursor of its lane
union all
select l.stream, l.group_name, e."offset", e.event_id, e.event_type, 'PENDING', 0, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, null, null,
       e.created_at, e.ordering_key, null, l.group_id
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
       r.available_at, null, null, r.last_error, null, r.reason, null, null,
       e.created_at, e.ordering_key, null, r.group_id
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
       l.claimed_at, e.ordering_key, l.id, l.group_id
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
       l.ended_at, e.ordering_key, l.id, l.group_id
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

-- The specification's second vocabulary.
create or replace view penstock.delivery_v2 as
select stream, group_name, "offset", event_id, event_type,
       case state when 'CLAIMED' then 'DELIVERING' when 'PUBLISHED' then 'DELIVERED' else state end as status,
       attempts, available_at, claimed_at as locked_at, claimed_by as locked_by, last_error, published_at as delivered_at,
       updated_at, ordering_key
  from penstock.delivery;
