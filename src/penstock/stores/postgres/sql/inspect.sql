-- name: inspect.deliveries
select v.stream, v.group_name, v."offset", v.event_id, v.event_type, v.state, v.attempts, v.failures, v.available_at,
       v.claimed_at, v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at, v.updated_at,
       e.payload, e.content_type, e.headers::text as headers, e.metadata::text as metadata, e.partition_key,
       e.ordering_key, e.created_at
  from penstock.delivery v join penstock.events e on e."offset" = v."offset"
 where v.group_id = %(group_id)s and v."offset" > %(after)s and v."offset" <= %(upto)s
   and (%(state)s::text is null or v.state = %(state)s)
   and (%(event_ids)s::uuid[] is null or v.event_id = any(%(event_ids)s::uuid[]))
   and (%(event_type)s::text is null or v.event_type = %(event_type)s)
   and (%(error)s::text is null or v.error_code = %(error)s or position(%(error)s in v.last_error) > 0)
   and (%(since)s::timestamptz is null or e.created_at >= %(since)s::timestamptz)
   and (%(until)s::timestamptz is null or e.created_at < %(until)s::timestamptz)
 order by v."offset" limit %(limit)s;

-- name: inspect.last_offset
select max("offset") as "offset" from penstock.events;

-- name: inspect.attempts
-- What did not succeed, out of the log of rows and out of the leases that held the event as part of a range.
select attempt, failures, replays, outcome, error, error_code, claimed_by, claimed_at, ended_at, lease from (
select id, attempt, failures, replays, outcome, error, error_code, claimed_by, claimed_at, ended_at, lease
  from penstock.attempt_log where group_id = %(group_id)s and "offset" = %(offset)s
union all
select 0, l.attempts, 0, l.replay,
       case when l.outcome = 'settled' and l.upto >= %(offset)s then 'published'
            when l.outcome = 'settled' then 'released' else coalesce(l.outcome, 'claimed') end,
       null, null, l.claimed_by, l.claimed_at, l.ended_at, l.id
  from penstock.leases l
 where l.group_id = %(group_id)s and l.offsets is null and int8range(l.low, l.high, '(]') @> %(offset)s::bigint
   and %(bucket)s::int * l.lanes / 256 = l.lane and %(offset)s <> all(l.holes)
   and not exists (select 1 from penstock.attempt_log a
                    where a.group_id = l.group_id and a."offset" = %(offset)s and a.lease = l.id)
) remembered
 order by ended_at nulls last, replays, attempt, id;

-- name: inspect.event
select "offset", event_id, event_type, coalesce(bucket, mod("offset", 256))::int as bucket from penstock.events
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
select coalesce(max(upto), 0) as upto from penstock.tally;

-- name: tally.add
-- A complete running count of the log at an offset: the one before, and what came since.
insert into penstock.tally (upto, stream, event_type, events)
select %(upto)s, stream, event_type, sum(events) from (
  select stream, event_type, events from penstock.tally where upto = %(before)s
  union all
  select stream, event_type, count(*) from penstock.events
   where "offset" > %(before)s and "offset" <= %(upto)s group by stream, event_type) counted
 group by stream, event_type
on conflict do nothing;

-- name: tally.mark
-- A marker claims the work of one block; it also says that the block was counted when it is empty.
insert into penstock.tally (upto, stream, event_type, events) values (%(upto)s, '', '', 0) on conflict do nothing;

-- name: stats.count
-- Events per stream and type up to an offset, from the running count and a short tail.
with base as (select coalesce(max(upto), 0) as upto from penstock.tally where upto <= %(upto)s)
select stream, event_type, sum(events)::bigint as events from (
  select t.stream, t.event_type, t.events from penstock.tally t, base where t.upto = base.upto and t.stream <> ''
  union all
  select e.stream, e.event_type, count(*) from penstock.events e, base
   where e."offset" > base.upto and e."offset" <= %(upto)s group by e.stream, e.event_type) counted
 group by stream, event_type;

-- name: stats.rows
-- Exception rows of every group by state, split at the cursor of their lane.
select d.group_id, d.state, d."offset" > l.cursor as ahead, count(*) as rows
  from penstock.deliveries d
  join penstock.lane l on l.group_id = d.group_id and l.lane = d.bucket * l.lanes / 256
 group by 1, 2, 3;

-- name: stats.groups
select g.group_id,
       (select coalesce(sum(r.members), 0) from penstock.returned r where r.group_id = g.group_id) as returned,
       (select coalesce(sum(l.members), 0) from penstock.open_lease l
         where l.group_id = g.group_id and l.offsets is null) as open,
       (select count(*) from penstock.open_lease l where l.group_id = g.group_id) as leases,
       (select coalesce(sum(l.answer[1]), 0)
          from generate_series(0, g.lanes - 1) as n(lane)
         cross join lateral (select answer, ended_at from penstock.leases
                              where group_id = g.group_id and lanes = g.lanes and lane = n.lane
                              order by id desc limit 1000) l
         where l.ended_at > %(now)s::timestamptz - interval '60 seconds') as recent
  from penstock.groups g;

-- name: stats.oldest
-- When the oldest event that a group has not finished was created.
select least(
  (select e.created_at from penstock.events e
    where e.stream = %(stream)s and e."offset" > (select min(cursor) from penstock.lane where group_id = %(group_id)s)
    order by e."offset" limit 1),
  (select e.created_at from penstock.events e
    where e.stream = %(stream)s and e."offset" > (select min(low) from penstock.returned where group_id = %(group_id)s)
    order by e."offset" limit 1),
  (select e.created_at from penstock.events e
    where e.stream = %(stream)s and e."offset" > (select min(coalesce(low, offsets[1] - 1)) from penstock.open_lease
                                                where group_id = %(group_id)s)
    order by e."offset" limit 1),
  (select e.created_at from penstock.events e
    where e."offset" = (select min("offset") from penstock.deliveries where group_id = %(group_id)s and state = 'PENDING'))
) as created_at;

-- name: stats.beyond
-- Wanted events beyond the cursors of a group that filters by header, as far as one look reaches.
select count(*) filter (where wanted) as wanted, count(*) as looked from (
  select (b.type_regex is null or e.event_type ~ b.type_regex)
         and (b.headers is null or e.headers @> b.headers) and e."offset" > l.cursor as wanted
    from (select * from penstock.events
           where stream = %(stream)s and "offset" > (select min(cursor) from penstock.lane where group_id = %(group_id)s)
             and "offset" <= %(upto)s order by "offset" limit %(most)s) e
    join penstock.lane l on l.group_id = %(group_id)s
                         and coalesce(e.bucket, mod(e."offset", 256)) * l.lanes / 256 = l.lane
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

-- name: doctor.repair_sequence
select setval('penstock.events_offset_seq', greatest((select coalesce(max("offset"), 1) from penstock.events),
                                                   (select last_value from penstock.events_offset_seq))) as value;
