-- name: inspect.deliveries
-- The comment in the WHERE becomes a list of offsets where events are named.
with page as materialized (
  select * from penstock_delivery v
   where v.group_id = :group_id and v."offset" > :after and v."offset" <= :upto
     and (:state is null or v.state = :state)
     /* these */
     and (:event_type is null or v.event_type = :event_type)
     and (:error is null or v.error_code = :error or instr(v.last_error, :error) > 0)
     and ((:since is null and :until is null) or exists (
           select 1 from penstock_events e where e."offset" = v."offset"
              and (:since is null or e.created_at >= :since) and (:until is null or e.created_at < :until)))
   order by v."offset" limit :limit
)
select v.stream, v.group_name, v."offset", v.event_id, v.event_type, v.state, v.attempts, v.failures, v.available_at,
       v.claimed_at, v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at, v.updated_at,
       e.payload, e.content_type, e.headers, e.metadata, e.partition_key, e.ordering_key, e.created_at
  from page v cross join penstock_events e on e."offset" = v."offset"
 order by v."offset";

-- name: inspect.last_offset
select max("offset") as "offset" from penstock_events;

-- name: inspect.attempts
-- What did not succeed, out of the log of rows and out of the leases that held the event as part of a range: per
-- number of lanes the one fresh lease that can contain it, and those that claimed it again.
select attempt, failures, replays, outcome, error, error_code, claimed_by, claimed_at, ended_at, lease from (
  select id, attempt, failures, replays, outcome, error, error_code, claimed_by, claimed_at, ended_at, lease
    from penstock_attempt_log where group_id = :group_id and "offset" = :offset
  union all
  select 0, l.attempts, 0, l.replay,
         case when l.outcome = 'settled' and l.upto >= :offset then 'published'
              when l.outcome = 'settled' then 'released' else coalesce(l.outcome, 'claimed') end,
         null, null, l.claimed_by, l.claimed_at, l.ended_at, l.id
    from (select (select f.id from penstock_leases f
                   where f.group_id = :group_id and f.lanes = p.lanes and f.lane = :bucket * p.lanes / 256
                     and f.fresh = 1 and f.high >= :offset order by f.high limit 1) as id
            from penstock_lane_counts p
          union all
          select id from penstock_leases
           where group_id = :group_id and offsets is null and fresh = 0 and high >= :offset and low < :offset) c
   cross join penstock_leases l on l.id = c.id
   where l.low < :offset and :bucket * l.lanes / 256 = l.lane
     and :offset not in (select value from json_each(l.holes))
     and not exists (select 1 from penstock_attempt_log a
                      where a.group_id = l.group_id and a."offset" = :offset and a.lease = l.id)) remembered
 order by ended_at nulls last, replays, attempt, id;

-- name: inspect.event
select "offset", event_id, event_type, coalesce(bucket, "offset" % 256) as bucket from penstock_events
 where "offset" = coalesce(:offset, (select "offset" from penstock_events where event_id = :event_id))
   and stream = :stream;

-- name: inspect.streams
-- One look into the index per stream, however long the log is.
with recursive streams(stream) as (
  select min(stream) from penstock_events
  union all
  select (select min(e.stream) from penstock_events e where e.stream > s.stream) from streams s where s.stream is not null
)
select s.stream, (select max("offset") from penstock_events e where e.stream = s.stream) as last_offset
  from streams s where s.stream is not null;

-- name: tally.last
select coalesce(max(upto), 0) as upto from penstock_tally;

-- name: tally.add
-- A complete running count of the log at an offset: the one before, and what came since.
insert into penstock_tally (upto, stream, event_type, events)
select :upto, stream, event_type, sum(events) from (
  select stream, event_type, events from penstock_tally where upto = :before
  union all
  select stream, event_type, count(*) from penstock_events
   where "offset" > :before and "offset" <= :upto group by stream, event_type) counted
 where true group by stream, event_type
on conflict do nothing;

-- name: tally.mark
-- A marker claims the work of one block; it also says that the block was counted when it is empty.
insert into penstock_tally (upto, stream, event_type, events) values (:upto, '', '', 0) on conflict do nothing;

-- name: stats.count
-- Events per stream and type up to an offset, from the running count and a short tail.
with base as materialized (select coalesce(max(upto), 0) as upto from penstock_tally where upto <= :upto)
select stream, event_type, sum(events) as events from (
  select t.stream, t.event_type, t.events from base cross join penstock_tally t on t.upto = base.upto
   where t.stream <> ''
  union all
  select e.stream, e.event_type, count(*) from base cross join penstock_events e not indexed
   where e."offset" > base.upto and e."offset" <= :upto group by e.stream, e.event_type) counted
 group by stream, event_type;

-- name: stats.rows
-- Exception rows of every group by state, split at the cursor of their lane.
with lanes as materialized (select group_id, lane, lanes, cursor from penstock_lane)
select d.group_id, d.state, d."offset" > l.cursor as ahead, count(*) as rows
  from penstock_deliveries d
  join lanes l on l.group_id = d.group_id and l.lane = d.bucket * l.lanes / 256
 group by 1, 2, 3;

-- name: stats.groups
select g.group_id,
       (select coalesce(sum(r.members), 0) from penstock_returned r where r.group_id = g.group_id) as returned,
       (select coalesce(sum(l.members), 0) from penstock_leases l
         where l.group_id = g.group_id and l.outcome is null and l.offsets is null) as open,
       (select count(*) from penstock_leases l where l.group_id = g.group_id and l.outcome is null) as leases,
       (select coalesce(sum(json_extract(l.answer, '$[0]')), 0)
          from json_each(g.starts) s
         cross join penstock_leases l on l.id in (
                 select x.id from penstock_leases x
                  where x.group_id = g.group_id and x.lanes = g.lanes and x.lane = s.key
                  order by x.id desc limit 1000)
         where l.ended_at > :now - 60000000) as recent
  from penstock_groups g;

-- name: stats.oldest
-- When the oldest event that a group has not finished was created.
select min(created_at) as created_at from (
  select (select e.created_at from penstock_events e indexed by penstock_events_stream
           where e.stream = :stream and e."offset" > after order by e."offset" limit 1) as created_at
    from (select min(cursor) as after from penstock_lane where group_id = :group_id
          union all
          select min(low) from penstock_returned where group_id = :group_id
          union all
          select min(coalesce(low, json_extract(offsets, '$[0]') - 1)) from penstock_leases
           where group_id = :group_id and outcome is null)
  union all
  select e.created_at from penstock_events e
   where e."offset" = (select min("offset") from penstock_deliveries where group_id = :group_id and state = 'PENDING'));

-- name: stats.beyond
-- Wanted events beyond the cursors of a group that filters by header, as far as one look reaches.
with lanes as materialized (select lane, lanes, cursor from penstock_lane where group_id = :group_id),
     b as materialized (select * from penstock_binding_span where group_id = :group_id)
select coalesce(sum(wanted), 0) as wanted, count(*) as looked from (
  select e."offset" > l.cursor
         and (b.types is null or exists (
               select 1 from penstock_binding_types t where t.binding = b.binding and e.event_type glob t."glob"
                  and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
         and (b.headers is null or not exists (
               select 1 from json_each(b.headers) h
                where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value))) as wanted
    from (select * from penstock_events indexed by penstock_events_stream
           where stream = :stream and "offset" > (select min(cursor) from lanes) and "offset" <= :upto
           order by "offset" limit :most) e
    join lanes l on coalesce(e.bucket, e."offset" % 256) * l.lanes / 256 = l.lane
    join b on e."offset" > b.low and e."offset" <= b.high) looked;

-- name: doctor.settings
select 'journal_mode' as name, journal_mode as setting from pragma_journal_mode
union all
select 'synchronous', case synchronous when 0 then 'off' when 1 then 'normal' when 2 then 'full' else 'extra' end
  from pragma_synchronous
union all
select 'sqlite_version', sqlite_version();

-- name: doctor.holders
-- Nobody can hold the horizon back: an open write transaction holds the whole file.
select null as pid, null as application_name, null as state, null as started_at where false;

-- name: doctor.indexes
select name from sqlite_master where type = 'index' and tbl_name glob 'penstock_*';

-- name: doctor.stuck
select l.id, g.stream, g.group_name, l.claimed_by, l.expires_at
  from penstock_leases l join penstock_groups g on g.group_id = l.group_id
 where l.outcome is null and l.expires_at < :now order by l.expires_at limit 20;

-- name: doctor.blocked
select g.stream, g.group_name, count(*) as rows
  from penstock_deliveries d join penstock_groups g on g.group_id = d.group_id
 where d.state = 'PENDING' and d.reason = 'blocked' group by 1, 2 having count(*) >= :most;

-- name: doctor.last_claim
select g.stream, g.group_name, (select max(claimed_at) from penstock_leases l where l.group_id = g.group_id) as claimed_at
  from penstock_groups g;

-- name: doctor.repair_sequence
-- AUTOINCREMENT goes on above the greatest offset whatever was restored: nothing to repair.
select max(coalesce((select seq from sqlite_sequence where name = 'penstock_events'), 0),
           coalesce((select max("offset") from penstock_events), 0)) as value;
