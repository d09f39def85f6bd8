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

-- name: doctor.readers
-- Streaming readers that have held a claim for a while, and whether the run that they belong to is over.
select g.stream, g.group_name, l.claimed_by, min(l.claimed_at) as claimed_at, sum(l.members)::bigint as events,
       min(l.expires_at) as expires_at, bool_and(k.run is not null and not exists (
         select 1 from penstock.runs r where r.id = k.run and r.ended_at is null
            and r.heartbeat_at > %(now)s::timestamptz - make_interval(secs => %(lost_seconds)s))) as gone
  from penstock.open_lease l join penstock.groups g using (group_id) join penstock.leases k on k.id = l.id
 where l.claimed_by like 'reader:%%' and l.expires_at > %(now)s
 group by g.stream, g.group_name, l.claimed_by
having min(l.claimed_at) < %(now)s::timestamptz - make_interval(secs => %(silent_seconds)s)
 order by min(l.claimed_at) limit 20;

-- name: doctor.blocked
select g.stream, g.group_name, count(*) as rows from penstock.deliveries d join penstock.groups g using (group_id)
 where d.state = 'PENDING' and d.reason = 'blocked' group by 1, 2 having count(*) >= %(most)s;

-- name: doctor.last_claim
select g.stream, g.group_name, (select max(claimed_at) from penstock.leases l where l.group_id = g.group_id) as claimed_at
  from penstock.groups g;

-- name: doctor.sequences
-- Every sequence: where it stands, and the highest number that is stored.
select name, last, stored from penstock.sequences();
