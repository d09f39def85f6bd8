-- name: vitals.blocked
-- Deliveries that wait for an earlier one of their key, per group, and how many lanes stand still because of them.
select stream, group_name, sum(waiting)::bigint as waiting, count(*) filter (where waiting >= %(most)s) as lanes
  from (select g.stream, g.group_name, d.bucket * g.lanes / 256 as lane, count(*) as waiting
          from penstock.deliveries d join penstock.groups g using (group_id)
         where d.state = 'PENDING' and d.reason = 'blocked'
         group by 1, 2, 3) b
 group by 1, 2;

-- name: vitals.runs
-- Runs that have not ended, by engine, and how many of them have sent no heartbeat for a while.
select engine, count(*) filter (where heartbeat_at >= %(since)s) as running,
       count(*) filter (where heartbeat_at < %(since)s) as lost
  from penstock.runs where ended_at is null group by engine;

-- name: vitals.schema
-- The newest migration that ran.
select max(version) as version from penstock.schema_version;

-- name: vitals.expired
-- Leases whose time is over and that nobody has taken back yet, counted up to a limit.
select count(*) as leases
  from (select 1 from penstock.open_lease where expires_at < %(now)s limit %(most)s) expired;
