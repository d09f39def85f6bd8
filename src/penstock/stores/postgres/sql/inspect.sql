-- name: inspect.deliveries
select v.stream, v.group_name, v."offset", v.event_id, v.event_type, v.state, v.attempts, v.failures, v.available_at,
       v.claimed_at, v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at, v.updated_at,
       v.total_attempts, v.error_type, v.fingerprint, e.payload, e.content_type, e.headers::text as headers, e.metadata::text as metadata, e.partition_key,
       e.ordering_key, e.created_at
  from penstock.delivery v join penstock.events e on e."offset" = v."offset"
 where v.group_id = %(group_id)s and v."offset" > %(after)s and v."offset" <= %(upto)s
   and (%(state)s::text is null or v.state = %(state)s)
   and {{of_ids}}
   and {{of_type(v.)}}
   and {{of_error(v.)}}
   and {{created_between(e.)}}
 order by v."offset" limit %(limit)s;

-- name: inspect.next
-- The lowest offset above `after` at which a delivery of a state may be: a row; for what waits, beyond a cursor or in a
-- range that came back; for what is in work, in an open lease.
select min("offset") as "offset" from (
  select min("offset") as "offset" from penstock.deliveries
   where group_id = %(group_id)s and "offset" > %(after)s and state = %(state)s
  union all
  select min(greatest(cursor, %(after)s)) + 1 from penstock.lane where group_id = %(group_id)s and %(state)s = 'PENDING'
  union all
  select min(greatest(low, %(after)s)) + 1 from penstock.returned
   where group_id = %(group_id)s and high > %(after)s and %(state)s = 'PENDING'
  union all
  select min(greatest(low, %(after)s)) + 1 from penstock.open_lease
   where group_id = %(group_id)s and high > %(after)s and %(state)s = 'CLAIMED') maybe;

-- name: inspect.type_from
-- Up to where a stream has no event of a type above an offset, as far as the tally knows it by its steps.
select coalesce(max(s.upto), 0) as upto from (select distinct upto from penstock.tally_step where stream = %(stream)s) s
 where s.upto > %(after)s
   and coalesce((select t.events from penstock.tally_step t
                  where t.stream = %(stream)s and t.upto = s.upto and t.event_type = %(event_type)s), 0)
     = coalesce((select t.events from penstock.tally_step t
                  where t.stream = %(stream)s and t.event_type = %(event_type)s
                    and t.upto = (select max(b.upto) from penstock.tally_step b
                                   where b.stream = %(stream)s and b.upto <= %(after)s)), 0);

-- name: inspect.last_offset
select max("offset") as "offset" from penstock.events;

-- name: inspect.history
select h.attempt, h.failures, h.replays, h.outcome, h.error, h.error_code, h.claimed_by, h.claimed_at, h.ended_at, h.lease,
       h.at, h.by, h.error_type, h.fingerprint, f.traceback
  from penstock.history h left join penstock.fingerprints f on f.fingerprint = h.fingerprint
 where h.group_id = %(group_id)s and h."offset" = %(offset)s
 order by h.at, h.lease nulls last, h.step, h.line;

-- name: inspect.event
select "offset", event_id, event_type, {{bucket()}}::int as bucket from penstock.events
 where stream = %(stream)s and (event_id = %(event_id)s::uuid or "offset" = %(offset)s::bigint);

-- name: inspect.streams
-- One look into the index per stream, however long the log is.
with recursive streams as (
  (select stream from penstock.events order by stream limit 1)
  union all
  select (select e.stream from penstock.events e where e.stream > s.stream order by e.stream limit 1)
    from streams s where s.stream is not null
)
select s.stream, (select "offset" from penstock.events e where e.stream = s.stream
                   order by e."offset" desc limit 1) as last_offset
  from streams s where s.stream is not null;

-- name: tally.last
select coalesce(max(upto), 0) as upto from penstock.tally_mark;

-- name: tally.turn
-- The last mark, for whoever comes first; nobody waits for it. (A row and no advisory lock: strangers cannot hold it.)
select upto from penstock.tally_mark where upto = (select max(upto) from penstock.tally_mark) for update skip locked;

-- name: tally.mark
-- Whoever inserts the mark counts its block.
insert into penstock.tally_mark (upto) values (%(upto)s) on conflict do nothing;

-- name: tally.add
insert into penstock.tally_now as n (stream, event_type, events)
select stream, event_type, count(*) from penstock.events
 where "offset" > %(before)s and "offset" <= %(upto)s group by stream, event_type order by stream, event_type
on conflict (stream, event_type) do update set events = n.events + excluded.events
returning stream;

-- name: tally.keep
-- The counts at this mark of streams that have grown enough since their last step (and enough for their many types).
insert into penstock.tally_step (stream, upto, event_type, events)
select n.stream, %(upto)s, n.event_type, n.events
  from unnest(%(streams)s::text[]) as s(stream)
 cross join lateral (select sum(events) as events, count(*) as types from penstock.tally_now where stream = s.stream) t
 cross join lateral (select coalesce(sum(k.events), 0) as events from penstock.tally_step k
                      where k.stream = s.stream
                        and k.upto = (select max(upto) from penstock.tally_step where stream = s.stream)) k
  join penstock.tally_now n on n.stream = s.stream
 where t.events - k.events >= greatest(%(growth)s, 20 * t.types)
on conflict do nothing;

-- name: stats.now
-- Events per stream and type up to an offset behind the last mark: the counts at the mark, and a short tail.
with mark as materialized (select coalesce(max(upto), 0) as upto from penstock.tally_mark)
select stream, event_type, sum(events)::bigint as events from (
  select stream, event_type, events from penstock.tally_now where %(stream)s::text is null or stream = %(stream)s
  union all
  select stream, event_type, count(*) from (
    select e.stream, e.event_type from penstock.events e
     where e."offset" > (select upto from mark) and e."offset" <= %(upto)s
       and (%(stream)s::text is null or e.stream = %(stream)s)) tail
   group by stream, event_type) counted
 group by stream, event_type;

-- name: stats.at
-- Events per type of streams up to offsets. Each is counted from the step below it, or, where that is nearer
-- (`relative`), from the offset asked for before it.
with asked as (
  select stream, "offset", coalesce(lag("offset") over (partition by stream order by "offset"), 0) as before
    from unnest(%(streams)s::text[], %(offsets)s::bigint[]) as a(stream, "offset")
), placed as materialized (
  select a.*, coalesce((select s.upto from penstock.tally_step s where s.stream = a.stream and s.upto <= a."offset"
                         order by s.upto desc limit 1), 0) as base from asked a
)
select p.stream, p."offset", p.before > p.base as relative, c.event_type, c.events
  from placed p
  left join lateral (
    select event_type, sum(events)::bigint as events from (
      select s.event_type, s.events from penstock.tally_step s
       where s.stream = p.stream and s.upto = p.base and p.before <= p.base
      union all
      select e.event_type, 1 from (select event_type from penstock.events
                                    where stream = p.stream and "offset" > greatest(p.before, p.base)
                                      and "offset" <= p."offset" offset 0) e) counted
     group by event_type) c on true
 order by p.stream, p."offset";

-- name: stats.lanes
-- Every lane of groups: how far it has got, and how many events it has passed.
select g.group_id, (l.number - 1)::int as lane, coalesce(c.high, l.start) as cursor, c.total
  from penstock.groups g
 cross join lateral unnest(g.starts) with ordinality as l(start, number)
  left join lateral (select high, total from penstock.leases
                      where group_id = g.group_id and lanes = g.lanes and lane = l.number - 1 and fresh
                      order by high desc limit 1) c on true
 where {{of_group(g.)}}
 order by g.group_id, lane;

-- name: stats.rows
-- Exception rows by state, split at the cursor of their lane; the first of each kind.
with lanes as materialized (
  select group_id, lane, lanes, cursor from penstock.lane
   where {{of_group()}}
)
select d.group_id, d.state, d."offset" > l.cursor as ahead, count(*) as rows, min(d."offset") as first
  from lanes l join penstock.deliveries d on d.group_id = l.group_id and d.bucket * l.lanes / 256 = l.lane
 group by 1, 2, 3;

-- name: stats.groups
-- What waits as ranges, what is in work, and the rate, from the newest leases of every lane: over a minute, or over the
-- time that as many leases as are looked at reach back.
select g.group_id, coalesce(r.members, 0) as returned, o.members as open, o.leases, n.rate
  from penstock.groups g
  left join (select group_id, sum(members) as members from penstock.returned group by group_id) r
    on r.group_id = g.group_id
 cross join lateral (
       select coalesce(sum(l.members) filter (where l.offsets is null), 0) as members, count(*) as leases
         from penstock.open_lease l where l.group_id = g.group_id) o
 cross join lateral (
       select coalesce(sum(lane.rate), 0)::double precision as rate from generate_series(0, g.lanes - 1) as s(lane)
        cross join lateral (
              select sum(answer[1]) / case when count(*) = %(looked)s
                       then greatest(1, extract(epoch from %(now)s::timestamptz - min(ended_at))) else 60 end as rate
                from (select answer, ended_at from penstock.leases
                       where group_id = g.group_id and lanes = g.lanes and lane = s.lane
                       order by id desc limit %(looked)s) l
               where ended_at > %(now)s::timestamptz - interval '60 seconds') lane) n
 where {{of_group(g.)}};

-- name: stats.created
select "offset", created_at from penstock.events where "offset" = any(%(offsets)s::bigint[]);

-- name: stats.oldest_held
-- The oldest event of groups in a returned range or in an open lease: of each lane's lowest, and of each lease.
select group_id, min(created_at) as created_at from (
  select r.group_id, (
         select e.created_at from penstock.events e
          where e.stream = g.stream and e."offset" > r.low and e."offset" <= r.high
            and {{in_lane(e., r.)}}
            and {{bound(e.)}}
            and not {{has_row(r.group_id, e.)}}
          order by e."offset" limit 1) as created_at
    from (select distinct on (group_id, lanes, lane) * from penstock.returned
           where group_id = any(%(ids)s::int[]) and members > 0 order by group_id, lanes, lane, low) r
    join penstock.groups g on g.group_id = r.group_id
    join penstock.bindings b on b.id = r.binding
  union all
  select l.group_id, (
         select e.created_at from penstock.events e
          where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
            and {{in_lane(e., l.)}}
            and {{bound(e.)}} and e."offset" <> all (l.holes)
          order by e."offset" limit 1)
    from unnest(%(ids)s::int[]) as i(group_id)
   cross join lateral (select * from penstock.open_lease o where o.group_id = i.group_id and o.offsets is null offset 0) l
    join penstock.groups g on g.group_id = l.group_id
    join penstock.bindings b on b.id = l.binding) held
 group by group_id;

-- name: stats.oldest_beyond
-- The first event a group wants beyond the cursors of its lanes, as far as one look reaches.
select g.group_id, (
       select e.created_at from (
         select "offset", created_at, event_type, headers, {{bucket()}} as bucket
           from penstock.events
          where stream = g.stream and "offset" > greatest(g.after, b.low) and "offset" <= least(b.high, %(upto)s::bigint)
          order by "offset" limit %(scan)s) e
        where e."offset" > (g.cursors ->> (e.bucket * g.lanes / 256)::int)::bigint
          and {{bound(e.)}}
          and not {{has_row(g.group_id, e.)}}
        order by e."offset" limit 1) as created_at
  from jsonb_to_recordset(%(rows)s::jsonb) as g(group_id int, stream text, lanes int, after bigint, cursors jsonb)
 cross join lateral (select * from penstock.binding_span where group_id = g.group_id offset 0) b;

-- name: stats.beyond
-- Wanted events beyond the cursors of a group that filters by header, as far as one look reaches.
select count(*) filter (where wanted) as wanted, count(*) as looked from (
  select {{bound(e.)}} and e."offset" > l.cursor as wanted
    from (select * from penstock.events
           where stream = %(stream)s and "offset" > (select min(cursor) from penstock.lane where group_id = %(group_id)s)
             and "offset" <= %(upto)s order by "offset" limit %(most)s) e
    join penstock.lane l on l.group_id = %(group_id)s
                         and {{in_lane(e., l.)}}
    join penstock.binding_span b on b.group_id = %(group_id)s and e."offset" > b.low and e."offset" <= b.high) looked;

-- name: doctor.settings
select name, setting from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'server_version',
                                                     'max_connections', 'autovacuum');

-- name: doctor.holders
-- Who holds the horizon back: open and prepared transactions that append to this log (see horizon.announced).
select l.pid, a.usename as role, a.application_name, a.state, p.gid, coalesce(a.xact_start, p.prepared) as started_at
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
  left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
                      and x.virtualtransaction = l.virtualtransaction
  left join pg_prepared_xacts p on p.transaction = x.transactionid
 where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.granted
   and l.classid = 'penstock.events_offset_seq'::regclass::oid
   and l.database = (select oid from pg_database where datname = current_database())
   and l.virtualtransaction in (
         select w.virtualtransaction from pg_locks w
          where w.locktype = 'relation' and w.relation = 'penstock.events'::regclass::oid and w.database = l.database
            and w.mode = 'RowExclusiveLock' and w.granted)
 order by started_at nulls first limit 10;

-- name: doctor.indexes
select indexname as name from pg_indexes where schemaname = split_part('penstock.', '.', 1);

-- name: doctor.stuck
select l.id, g.stream, g.group_name, l.claimed_by, l.expires_at from penstock.open_lease l join penstock.groups g using (group_id)
 where l.expires_at < %(now)s order by l.expires_at limit 20;

-- name: doctor.blocked
select g.stream, g.group_name, count(*) as rows from penstock.deliveries d join penstock.groups g using (group_id)
 where d.state = 'PENDING' and d.reason = 'blocked' group by 1, 2 having count(*) >= %(most)s;

-- name: doctor.last_claim
select g.stream, g.group_name, (select max(claimed_at) from penstock.leases l where l.group_id = g.group_id) as claimed_at
  from penstock.groups g;

-- name: doctor.sequences
-- Every sequence: where it stands, and the highest number that is stored.
select name, last, stored from penstock.sequences();

-- name: repair.sequence
select setval(%(name)s::regclass, %(value)s);
