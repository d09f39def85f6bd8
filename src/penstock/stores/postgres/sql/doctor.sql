-- name: doctor.settings
select name, setting from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'server_version',
                                                     'autovacuum', 'autovacuum_freeze_max_age', 'listen_addresses');

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
select c.relname as name, i.indisvalid and i.indisready as valid
  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = split_part('penstock.', '.', 1);

-- name: doctor.schema
select coalesce(max(version), 0) as version from penstock.schema_version;

-- name: doctor.unvacuumed
-- Tables of the log that autovacuum leaves alone because somebody said so.
select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = split_part('penstock.', '.', 1) and c.relkind = 'r'
   and 'autovacuum_enabled=false' = any(c.reloptions) order by 1;

-- name: doctor.wraparound
select age(datfrozenxid) as transactions, mxid_age(datminmxid) as multis from pg_database where datname = current_database();

-- name: doctor.snapshots
-- Transactions that keep vacuum from removing what is dead.
select pid, usename as role, application_name, state, xact_start as started_at from pg_stat_activity
 where backend_xmin is not null and xact_start < %(before)s and pid <> pg_backend_pid() and backend_type = 'client backend'
 order by xact_start limit 10;

-- name: doctor.may_see_rules
select has_table_privilege('pg_hba_file_rules', 'select')
   and has_function_privilege('pg_hba_file_rules()', 'execute') as may;

-- name: doctor.rules
-- Who is let in over the network without a password.
select line_number, array_to_string(database, ',') as databases, array_to_string(user_name, ',') as users, address
  from pg_hba_file_rules
 where auth_method = 'trust' and type like 'host%%' and address not in ('127.0.0.1', '::1', 'localhost', 'samehost')
 order by line_number limit 10;

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

-- name: doctor.served
-- Services that answer over HTTP now.
select id, host, pid, app from penstock.runs
 where engine = 'serve' and ended_at is null and heartbeat_at > %(now)s::timestamptz - make_interval(secs => %(lost_seconds)s)
 order by id limit 20;

-- name: doctor.lost_runs
select id, name, engine, array_to_string(groups, ', ') as groups, heartbeat_at from penstock.runs
 where ended_at is null and heartbeat_at <= %(now)s::timestamptz - make_interval(secs => %(lost_seconds)s)
 order by heartbeat_at desc limit 20;
