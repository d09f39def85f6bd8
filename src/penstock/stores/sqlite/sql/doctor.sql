-- name: doctor.settings
select 'journal_mode' as name, journal_mode as setting from pragma_journal_mode
union all
select 'synchronous', case synchronous when 0 then 'off' when 1 then 'normal' when 2 then 'full' else 'extra' end
  from pragma_synchronous
union all
select 'sqlite_version', sqlite_version();

-- name: doctor.holders
-- Nobody can hold the horizon back: an open write transaction holds the whole file.
select null as pid, null as role, null as application_name, null as state, null as gid, null as started_at where false;

-- name: doctor.indexes
select name, 1 as valid from sqlite_master where type = 'index' and tbl_name glob 'penstock_*';

-- name: doctor.schema
select coalesce(max(version), 0) as version from penstock_schema_version;

-- name: doctor.stuck
select l.id, g.stream, g.group_name, l.claimed_by, l.expires_at
  from penstock_leases l join penstock_groups g on g.group_id = l.group_id
 where l.outcome is null and l.expires_at < :now order by l.expires_at limit 20;

-- name: doctor.readers
-- Streaming readers that have held a claim for a while, and whether the run that they belong to is over.
select g.stream, g.group_name, l.claimed_by, min(l.claimed_at) as claimed_at, sum(l.members) as events,
       min(l.expires_at) as expires_at, min(l.run is not null and not exists (
         select 1 from penstock_runs r where r.id = l.run and r.ended_at is null
            and r.heartbeat_at > :now - cast(:lost_seconds * 1000000 as integer))) as gone
  from penstock_leases l join penstock_groups g on g.group_id = l.group_id
 where l.outcome is null and l.claimed_by like 'reader:%' and l.expires_at > :now
 group by g.stream, g.group_name, l.claimed_by
having min(l.claimed_at) < :now - cast(:silent_seconds * 1000000 as integer)
 order by min(l.claimed_at) limit 20;

-- name: doctor.blocked
select g.stream, g.group_name, count(*) as rows
  from penstock_deliveries d join penstock_groups g on g.group_id = d.group_id
 where d.state = 'PENDING' and d.reason = 'blocked' group by 1, 2 having count(*) >= :most;

-- name: doctor.last_claim
select g.stream, g.group_name, (select max(claimed_at) from penstock_leases l where l.group_id = g.group_id) as claimed_at
  from penstock_groups g;

-- name: doctor.sequences
-- SQLite's own never fall behind: they are kept in the same file, by the same transaction.
select null as name, null as last, null as stored where false;

-- name: doctor.served
-- Services that answer over HTTP now.
select id, host, pid, app from penstock_runs
 where engine = 'serve' and ended_at is null and heartbeat_at > :now - cast(:lost_seconds * 1000000 as integer)
 order by id limit 20;

-- name: doctor.lost_runs
select id, name, engine, (select group_concat(value, ', ') from json_each(groups)) as groups, heartbeat_at
  from penstock_runs
 where ended_at is null and heartbeat_at <= :now - cast(:lost_seconds * 1000000 as integer)
 order by heartbeat_at desc limit 20;
