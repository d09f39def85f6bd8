-- The view `delivery`, written from the side that the answer comes from: a group's lanes, returned ranges and open leases
-- for what waits or is in work, the newest offsets for what is finished. A subquery with an ORDER BY is a fence: the plan
-- does not turn the join around (statistics cannot say how little lies beyond a cursor), and yet conditions on the offset,
-- the stream or the group go down into it. What may be long is walked along the index, offset by offset, and an event is
-- fetched when its turn comes: nothing is sorted, and a LIMIT ends it. One event is looked up by its offset, or with
-- `deliveries_of`.

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
select l.stream, l.group_name, k."offset", e.event_id, e.event_type, 'PENDING', 0, 0,
       coalesce(e.available_at, e.created_at), null, null, null, null, null, null, null,
       e.created_at, e.ordering_key, null, l.group_id,
       case when e."offset" > (select rewound_upto from penstock.groups where group_id = l.group_id) then 0
            else penstock.claims_of(l.group_id, e."offset", coalesce(e.bucket, mod(e."offset", 256))::int) end,
       null, null, 0
  from penstock.lane l
 cross join lateral (select * from penstock.binding_span where group_id = l.group_id offset 0) b
 cross join lateral (
       select stream, "offset" from penstock.events
        where stream = l.stream and "offset" > l.cursor and "offset" > b.low and "offset" <= b.high
          and coalesce(bucket, mod("offset", 256)) * l.lanes / 256 = l.lane
        order by stream, "offset") k
 cross join lateral (select * from penstock.events where "offset" = k."offset" offset 0) e
 where (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.deliveries d where d.group_id = l.group_id and d."offset" = k."offset" offset 0)
-- came back and waits to be claimed again
union all
select g.stream, g.group_name, k."offset", e.event_id, e.event_type, 'PENDING', r.attempts, 0,
       r.available_at, null, null, r.last_error, r.error_code, r.reason, null, null,
       r.returned_at, e.ordering_key, null, r.group_id,
       case when r.replay = 0 and e."offset" > g.rewound_upto then r.attempts
            else penstock.claims_of(r.group_id, e."offset", coalesce(e.bucket, mod(e."offset", 256))::int) end,
       r.error_type, r.fingerprint, r.replay
  from penstock.returned r
  join penstock.groups g on g.group_id = r.group_id
  join penstock.bindings b on b.id = r.binding
 cross join lateral (
       select stream, "offset" from penstock.events
        where stream = g.stream and "offset" > r.low and "offset" <= r.high
          and coalesce(bucket, mod("offset", 256)) * r.lanes / 256 = r.lane
        order by stream, "offset") k
 cross join lateral (select * from penstock.events where "offset" = k."offset" offset 0) e
 where (b.type_regex is null or e.event_type ~ b.type_regex)
   and (b.headers is null or e.headers @> b.headers)
   and not exists (select 1 from penstock.deliveries d where d.group_id = r.group_id and d."offset" = k."offset" offset 0)
-- in an open lease
union all
select g.stream, g.group_name, e."offset", e.event_id, e.event_type, 'CLAIMED', l.attempts, 0,
       coalesce(e.available_at, e.created_at), l.claimed_at, l.claimed_by, null, null, null, null, null,
       l.claimed_at, e.ordering_key, l.id, g.group_id,
       case when l.replay = 0 and e."offset" > g.rewound_upto then l.attempts
            else penstock.claims_of(g.group_id, e."offset", coalesce(e.bucket, mod(e."offset", 256))::int) end,
       null, null, l.replay
  from penstock.groups g
 cross join lateral (select * from penstock.open_lease o where o.group_id = g.group_id and o.offsets is null offset 0) l
  join penstock.bindings b on b.id = l.binding
 cross join lateral (
       select e.* from penstock.events e
        where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
          and coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane
          and (b.type_regex is null or e.event_type ~ b.type_regex)
          and (b.headers is null or e.headers @> b.headers)
          and e."offset" <> all (l.holes)
        order by e."offset") e
-- finished as part of a range: the newest lease that has the event, and has not given it back, has settled it. From the
-- offsets' side, out of the index and newest first, so that a look at the newest ends with them. How far a group has got
-- is looked up once: what lies beyond is passed by without a look at leases.
union all
(select k.stream, g.group_name, k."offset", f.event_id, f.event_type, 'PUBLISHED', f.attempts, 0,
       f.available_at, null, null, null, null, null, f.ended_at, null,
       f.ended_at, f.ordering_key, f.lease, g.group_id, f.total_attempts, null, null, f.replay
  from (select stream, "offset", coalesce(bucket, mod("offset", 256))::int as bucket
          from penstock.events order by stream desc, "offset" desc) k
  join (select stream, group_id, group_name, rewound_upto,
               (select max(cursor) from penstock.lane l where l.group_id = o.group_id) as reach
          from penstock.groups o order by group_id) g
    on g.stream = k.stream and k."offset" <= g.reach
 cross join lateral (
       select e.event_id, e.event_type, l.attempts, l.ended_at, l.id as lease, l.replay,
              e.ordering_key, coalesce(e.available_at, e.created_at) as available_at,
              case when l.replay = 0 and k."offset" > g.rewound_upto then l.attempts
                   else penstock.claims_of(g.group_id, k."offset", k.bucket) end as total_attempts
         from (select * from penstock.leases
                where low < k."offset" and high >= k."offset"  -- for a few leases; the next line finds one of many
                  and int8range(low, high, '(]') @> k."offset" and offsets is null
                  and group_id + 0 = g.group_id  -- by its range alone: not by all leases of the group, for every event
                  and k.bucket * lanes / 256 = lane and k."offset" <> all (holes)
                  and (outcome is null or (outcome = 'settled' and upto >= k."offset"))
                order by id desc limit 1) l
        cross join lateral (select * from penstock.events where "offset" = k."offset" offset 0) e
         join penstock.bindings b on b.id = l.binding
        where l.outcome = 'settled'
          and (b.type_regex is null or e.event_type ~ b.type_regex)
          and (b.headers is null or e.headers @> b.headers)
          and not exists (select 1 from penstock.deliveries d
                           where d.group_id = g.group_id and d."offset" = k."offset" offset 0)
          and not exists (select 1 from penstock.returned r
                           where r.group_id = g.group_id and r.low < k."offset" and r.high >= k."offset"
                             and k.bucket * r.lanes / 256 = r.lane offset 0)
        offset 0) f
 order by k."offset" desc);

-- One event as every group of its stream sees it.
create or replace function penstock.deliveries_of(an_event uuid) returns setof penstock.delivery
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  found_at record;
begin
  select e.stream, e."offset" into found_at from penstock.events e where e.event_id = an_event;
  return query select * from penstock.delivery v where v.stream = found_at.stream and v."offset" = found_at."offset";
end $$;
